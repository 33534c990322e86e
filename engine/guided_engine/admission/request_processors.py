"""A request's choice of logits processors, refused where it cannot be read or names what there is not."""

from collections.abc import Mapping, Sequence
from typing import Any

from guided_contract.config import LogitsProcessorConfig
from guided_contract.errors import ErrorCode
from guided_engine.admission.request_body import Keys, at, value_of
from guided_engine.admission.request_fault import Fault
from guided_engine.admission.request_routes import ARGUMENTS, ROUTES
from guided_engine.processors import choice
from guided_engine.processors.choice import ARGUMENT, ChoiceError


def fault(route: str, keys: Keys, processors: Sequence[LogitsProcessorConfig]) -> Fault | None:
    """Return what is wrong with the choice in a body; None: nothing is, or the body is no JSON of a route.

    Asked before vLLM reads the body, which takes or refuses a value of a wrong type in words of its own.
    """
    if route not in ROUTES:
        return None
    path = _path(route)
    elsewhere = f"{ARGUMENTS}.{ARGUMENT}"
    if path != elsewhere and bytes(at(keys, elsewhere)) != b"null":
        message = f"it has no effect here; write it in {ROUTES[route].arguments}"
        return Fault(elsewhere, message, code=ErrorCode.REQUEST_INVALID)
    try:
        choice.chosen(value_of(at(keys, path)), processors)
    except ChoiceError as error:
        return Fault(path, str(error), code=ErrorCode.REQUEST_INVALID)
    return None


def chosen(
    route: str, extra_args: Mapping[str, Any] | None, processors: Sequence[LogitsProcessorConfig]
) -> list[str]:
    """Return the processors that a request gets, by name, wherever it came from.

    Raises
    ------
    GuidedError
        Its choice cannot be read, or the model has not what it names (request_invalid).
    """
    try:
        return choice.chosen((extra_args or {}).get(ARGUMENT), processors)
    except ChoiceError as error:
        raise Fault(_path(route), str(error), code=ErrorCode.REQUEST_INVALID).error from error


def _path(route: str) -> str:
    known = ROUTES.get(route)
    return f"{known.arguments if known else ARGUMENTS}.{ARGUMENT}"
