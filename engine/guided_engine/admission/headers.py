"""Headers: the trace and the name that a request comes with, and what a response says beside its body."""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from starlette.types import Message, Send

from guided_contract import names, trace_context
from guided_contract.config import PodConfig
from guided_contract.trace_context import TraceContext
from guided_engine.admission import client_paths
from guided_engine.admission.exchange import HttpExchange, current

Headers = list[tuple[bytes, bytes]]

_REQUEST_ID: Final = b"x-request-id"  # OpenAI's clients look for it
_ANTHROPIC: Final = b"request-id"
# As OpenTelemetry's propagators for responses write it: the format is traceparent's.
_TRACE: Final = b"traceresponse"
_OURS: Final = (_REQUEST_ID, _ANTHROPIC, _TRACE)
_MOST_NAME: Final = 128  # characters
_MOST_LIST: Final = 1000  # characters of a header that is a list, but for the word that there is more


def begin(headers: Iterable[tuple[bytes, bytes]], ratio: float) -> TraceContext:
    """Start the span of a request: below the caller's span where the headers name one, else a new trace.

    A caller's decision to sample or not is kept; `ratio` (0 to 1) decides for new traces.
    """
    headers = list(headers)
    parents = _values(headers, b"traceparent")
    caller = None
    if len(parents) == 1:
        caller = trace_context.parse(parents[0].strip(), ",".join(_values(headers, b"tracestate")) or None)
    return trace_context.new(ratio) if caller is None else caller.child()


def continued(headers: Headers, span: TraceContext) -> Headers:
    """Return the headers with `span` in place of the caller's, so that vLLM's spans become its children."""
    ours = (b"traceparent", span.traceparent.encode())
    dropped = {b"traceparent"} if span.parent_span_id else {b"traceparent", b"tracestate"}
    return [(name, value) for name, value in headers if name.lower() not in dropped] + [ours]


def given(headers: Headers) -> str:
    """Return the id that a client gave its request, "" if none that can be told back."""
    found = _values(headers, _REQUEST_ID)
    return found[0] if len(found) == 1 and _is_fit(found[0], _MOST_NAME) else ""


def called(name: str) -> None:
    """Note what vLLM calls the current request, unless its client has named it; its body may name it, too."""
    exchange = current.get()
    if exchange is not None and not exchange.request_id and _is_fit(name, 2 * _MOST_NAME):
        exchange.request_id = name


def told(start: Message, exchange: HttpExchange) -> Message:
    """Return the ASGI message that starts a response, with the request's names and what is missing of it."""
    name = exchange.name.encode()
    ours = [(_REQUEST_ID, name), (_TRACE, exchange.span.traceparent.encode())]
    if exchange.route == "/v1/messages":
        ours.append((_ANTHROPIC, name))
    listed = (
        (names.UNENFORCED_HEADER, client_paths.unenforced(exchange)),
        (names.IGNORED_HEADER, exchange.ignored),
    )
    ours += [(header.encode(), _listed(items).encode()) for header, items in listed if items]
    others = [header for header in start.get("headers", ()) if header[0].lower() not in _OURS]
    return {**start, "headers": [*others, *ours]}


def closing_connections(send: Send, pod: PodConfig) -> Send:
    """Return an ASGI `send` that adds `Connection: close` to responses while the pod drains.

    A connection once made goes to this pod for ever, whatever the endpoints say: so its client is asked to
    make a new one, which goes elsewhere.
    """

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start" and pod.is_draining:
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return closing


def _values(headers: Headers, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in headers if name.lower() == wanted]


def _is_fit(name: str, most: int) -> bool:
    """Return whether a name can be a header's value."""
    return len(name) <= most and name.isascii() and name.isprintable()


def _listed(items: Sequence[str]) -> str:
    """Return a JSON array in ASCII; where it gets too long, its last item says that there is more."""
    kept: list[str] = []
    left = _MOST_LIST
    for item in items:
        # What is longer is not written out to be counted.
        left -= len(json.dumps(item[:_MOST_LIST])) + len(", ")
        if left < 0:
            return json.dumps([*kept, "..."])
        kept.append(item)
    return json.dumps(kept)
