"""Everything that is looked at in a request's body before the application reads it, in order."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from guided_contract.config import LogitsProcessorConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import request_processors, request_tools, request_words
from guided_engine.admission.request_body import at, fault, invalid
from guided_engine.admission.request_routes import HOLDERS, ROUTES

_TIMES: Final = 2  # of a schema's size: as written, with what a grammar does not have of it


def check(
    route: str, body: Mapping[str, Any], most_bytes: int, processors: Sequence[LogitsProcessorConfig] = ()
) -> None:
    """Refuse a body that vLLM would trip over, or of which it would ignore what asks for a constraint.

    Parameters
    ----------
    most_bytes
        Of a schema.
    processors
        That the model has. vLLM takes or refuses a choice of a wrong type in words of its own.

    Raises
    ------
    GuidedError
        Its first fault.
    """
    if (known := ROUTES.get(route)) is None:
        return
    found = _too_large(body, _TIMES * most_bytes) or _streamed(route, body)
    found = found or request_words.first(route, body) or request_tools.first(route, body)
    if found is not None:
        raise found
    given = at(body, known.arguments)
    request_processors.chosen(route, given if isinstance(given, dict) else None, processors)


def _too_large(body: Mapping[str, Any], most: int) -> GuidedError | None:
    """Return what is so large that all that reads it would hold up others, and in the end it is refused."""
    for name in filter(body.get, HOLDERS):
        if name == "tools" and not (request_tools.is_forced(body) or request_tools.is_strict(body)):
            continue
        if (size := len(json.dumps(body[name]))) > most:
            return fault(name, f"it has {size} bytes; at most {most} are read", ErrorCode.GRAMMAR_TOO_LARGE)
    return None


def _streamed(route: str, body: Mapping[str, Any]) -> GuidedError | None:
    """Return a fault where vLLM would stream a part of an answer as if it were the whole."""
    if route != "/v1/chat/completions/batch" or body.get("stream") is not True:
        return None
    return invalid("stream", "this route does not stream: leave it out")
