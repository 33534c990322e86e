"""Our errors on the wire: a response of their own, or the last event of a stream that has begun."""

import json
import math
from typing import Any, Final

from starlette.types import Message

from guided_contract.errors import GuidedError
from guided_engine.admission import client_paths
from guided_engine.admission.exchange import HttpExchange

_MESSAGES: Final = "/v1/messages"
_RESPONSES: Final = "/v1/responses"


def response(error: GuidedError, exchange: HttpExchange) -> list[Message]:
    """Return the ASGI messages of a complete response with the error's status, body and Retry-After."""
    body = json.dumps(_whole(error, exchange)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(math.ceil(error.retry_after_s)).encode()))
    return [
        {"type": "http.response.start", "status": error.code.http_status, "headers": headers},
        {"type": "http.response.body", "body": body},
    ]


def last_event(error: GuidedError, exchange: HttpExchange, sequence: int) -> dict[str, Any]:
    """Return the ASGI message that ends an event stream with the error, in the format of its route.

    `sequence` is the number of events before it, which the Responses format tells with each.
    """
    whole = _whole(error, exchange)
    if exchange.route == _RESPONSES:
        event = {**whole["error"], "type": "error", "sequence_number": sequence}
        text = f"event: error\ndata: {json.dumps(event)}\n\n"
    elif exchange.route == _MESSAGES:
        text = f"event: error\ndata: {json.dumps(whole)}\n\n"
    else:
        text = f"data: {json.dumps(whole)}\n\ndata: [DONE]\n\n"
    return {"type": "http.response.body", "body": text.encode()}


def _whole(error: GuidedError, exchange: HttpExchange) -> dict[str, Any]:
    """Return the error's JSON object, in the client's own words and with what the request is called."""
    body = client_paths.translated(error, exchange).body()["error"]
    body |= {"request_id": exchange.name, "trace_id": exchange.span.trace_id}
    if exchange.route == _MESSAGES:  # Anthropic's clients look for a type and the id beside it
        return {"type": "error", "error": body, "request_id": exchange.name}
    return {"error": body}
