"""Everything that is looked at in a request's body before the application reads it, in order."""

import json
import re
from typing import Final

from guided_contract.errors import ErrorCode
from guided_engine.admission import request_json, request_tools, request_words
from guided_engine.admission.request_body import Keys
from guided_engine.admission.request_fault import Fault
from guided_engine.admission.request_routes import ROUTES, UNGUIDED


def fault(route: str, text: bytes, keys: Keys, most_bytes: int) -> Fault | None:
    """Return the first fault of a body; None: it may go on.

    Parameters
    ----------
    text, keys
        The body, a JSON object with these keys.
    most_bytes
        Of a schema.
    """
    if route not in ROUTES:
        return request_words.fault(route, keys) if route in UNGUIDED else None
    return (
        _too_large(keys, most_bytes)
        or request_json.fault(text, keys)
        or next(filter(None, (check(route, keys) for check in _CHECKS)), None)
    )


def unreadable(route: str, text: bytes) -> Fault | None:
    """Return why a body is read by nobody, where vLLM would not say it; None: vLLM says it, or it is read."""
    if route not in ROUTES:
        return None  # audio is no JSON
    if _is_text(text) and not _LONG_NUMBER.search(text) and text.count(b"[") + text.count(b"{") < _DEEP:
        return None  # soon: nearly all bodies
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return None
    except UnicodeDecodeError:
        message = "the body is not JSON in UTF-8; send it without Content-Encoding"
    except RecursionError:
        message = "the body nests objects and arrays too deeply"
    except ValueError:
        message = "the body has a number of too many digits"
    else:
        return None
    return Fault("", message, code=ErrorCode.REQUEST_INVALID)


def _is_text(text: bytes) -> bool:
    try:
        text.decode(json.detect_encoding(text), "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


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


def _conversation(route: str, keys: Keys) -> Fault | None:
    """Return a fault where vLLM would tell of Python's iterators."""
    if not route.startswith("/v1/chat/") or bytes(keys.get("messages", b"["))[:1] == b"[":
        return None
    return Fault("messages", "it must be a list of messages", code=ErrorCode.REQUEST_INVALID)


_LONG_NUMBER: Final = re.compile(rb"\d{4300}")  # more than Python reads
_DEEP: Final = 900
_TIMES: Final = 2
_CONSTRAINTS: Final = (
    *("structured_outputs", "response_format", "text", "output_config", "sampling_params", "tools"),
)
_FREE: Final = (b"null", b'"auto"', b'"none"', b'{"type":"auto"}', b'{"type": "auto"}', b'{"type":"none"}')
_CHECKS: Final = (_whole, _conversation, request_words.fault, request_tools.fault)
