"""What a request is called: by its client, in vLLM's log, and in traces."""

import uuid
from collections.abc import Iterable
from typing import Final

from starlette.types import Message

from guided_engine.admission.exchange import HttpExchange, current

Headers = Iterable[tuple[bytes, bytes]]

_REQUEST_ID: Final = b"x-request-id"  # OpenAI's clients look for it
_ANTHROPIC: Final = b"request-id"
# As OpenTelemetry's propagators for responses write it: the format is traceparent's.
_TRACE: Final = b"traceresponse"
_OURS: Final = (_REQUEST_ID, _ANTHROPIC, _TRACE)
_MOST_CHARACTERS: Final = 128


def given(headers: Headers) -> str:
    """Return the id that a client gave its request, "" if none that can be told back."""
    found = [value.decode("latin-1") for name, value in headers if name.lower() == _REQUEST_ID]
    return found[0] if len(found) == 1 and _is_fit(found[0], _MOST_CHARACTERS) else ""


def called(name: str) -> None:
    """Note what vLLM calls the current request, unless its client has named it; its body may name it, too."""
    exchange = current.get()
    if exchange is not None and not exchange.request_id and _is_fit(name, 2 * _MOST_CHARACTERS):
        exchange.request_id = name


def request_id(exchange: HttpExchange) -> str:
    """Return what a request is called: as its client or vLLM has called it, else a new name."""
    if not exchange.request_id:
        exchange.request_id = uuid.uuid4().hex
    return exchange.request_id


def told(start: Message, exchange: HttpExchange) -> Message:
    """Return the ASGI message that starts a response, with the request's id and its trace as headers."""
    name = request_id(exchange).encode()
    ours = [(_REQUEST_ID, name), (_TRACE, exchange.span.traceparent.encode())]
    if exchange.route == "/v1/messages":
        ours.append((_ANTHROPIC, name))
    others = [header for header in start.get("headers", ()) if header[0].lower() not in _OURS]
    return {**start, "headers": [*others, *ours]}


def _is_fit(name: str, most: int) -> bool:
    """Return whether a name can be a header's value."""
    return len(name) <= most and name.isascii() and name.isprintable()
