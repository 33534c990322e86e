"""Everything that is looked at in a request's body before the application reads it, in order."""

from typing import Final

from guided_contract.errors import ErrorCode
from guided_engine.admission import request_tools, request_words
from guided_engine.admission.request_body import Keys
from guided_engine.admission.request_fault import Fault
from guided_engine.admission.request_routes import ROUTES, UNGUIDED


def fault(route: str, keys: Keys, most_bytes: int) -> Fault | None:
    """Return the first fault of a body; None: it may go on.

    Parameters
    ----------
    keys
        Of the body.
    most_bytes
        Of a schema.
    """
    if route not in ROUTES:
        return request_words.fault(route, keys) if route in UNGUIDED else None
    return _too_large(keys, most_bytes) or next(filter(None, (check(route, keys) for check in _CHECKS)), None)


def _too_large(keys: Keys, most_bytes: int) -> Fault | None:
    """Return what is so large that all that reads it would hold up others, and in the end it is refused."""
    most = _TIMES * most_bytes  # as written, with what a grammar does not have of it
    for name in filter(keys.__contains__, _CONSTRAINTS):
        size = len(memoryview(keys[name]))
        is_guided = name != "tools" or request_words.is_strict(keys) or _forces(keys)
        if size > most and is_guided:
            message = f"it has {size} bytes; at most {most} are read"
            return Fault(name, message, code=ErrorCode.GRAMMAR_TOO_LARGE)
    return None


def _forces(keys: Keys) -> bool:
    return bytes(keys.get("tool_choice", b"null")) not in _FREE


def _whole(route: str, keys: Keys) -> Fault | None:
    """Return a fault where vLLM would stream a part of an answer as if it were the whole."""
    if route != "/v1/chat/completions/batch" or bytes(keys.get("stream", b"")) != b"true":
        return None
    return Fault("stream", "this route does not stream: leave it out", code=ErrorCode.REQUEST_INVALID)


_TIMES: Final = 2
_CONSTRAINTS: Final = (
    *("structured_outputs", "response_format", "text", "output_config", "sampling_params", "tools"),
)
_FREE: Final = (b"null", b'"auto"', b'"none"', b'{"type":"auto"}', b'{"type": "auto"}', b'{"type":"none"}')
_CHECKS: Final = (_whole, request_words.fault, request_tools.fault)
