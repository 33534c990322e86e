"""Errors that vLLM's own reading of a body ends with: a value of a type that nobody expected."""

import logging
import traceback
from typing import Final

from guided_contract.errors import ErrorCode
from guided_engine.admission.request_fault import Fault

_log = logging.getLogger("guided_engine")
# FastAPI's module in which a body becomes vLLM's request; nothing of the handler is called from there.
_READING: Final = "fastapi.dependencies.utils"

REFUSAL: Final = Fault(
    "",
    "the request cannot be read: a field has a value of a type that it does not take",
    code=ErrorCode.REQUEST_INVALID,
).error


def failed(error: BaseException) -> bool:
    """Return whether an error was raised while a body was read, before the handler was called; log it then.

    Let out, such an error would be answered with 500, and the server close the connection behind it.
    """
    modules = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
    if _READING not in modules:
        return False
    _log.warning("reading a request ended with %s in %s", type(error).__name__, modules[-1])
    return True
