"""Errors that vLLM's own reading of a body ends with: a value of a type that nobody expected."""

import traceback
from typing import Final

from guided_contract.errors import ErrorCode
from guided_engine.admission.request_fault import Fault

# FastAPI's module in which a body becomes vLLM's request; nothing of the handler is called from there.
_READING: Final = "fastapi.dependencies.utils"

REFUSAL: Final = Fault(
    "",
    "the request cannot be read: a field has a value of a type that it does not take",
    code=ErrorCode.REQUEST_INVALID,
).error


def failed(error: BaseException) -> bool:
    """Return whether an error was raised while a body was read, before the handler was called.

    Let out, such an error would be answered with 500, and the server close the connection behind it.
    """
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") == _READING for frame in frames)
