"""Our errors on the wire: a response of their own, or the last event of a stream that has begun."""

import json
import math
from typing import Any, Final

from guided_contract.errors import GuidedError

_MESSAGES: Final = "/v1/messages"
_RESPONSES: Final = "/v1/responses"


def response(error: GuidedError, route: str) -> list[dict[str, Any]]:
    """Return the ASGI messages of a complete response with the error's status, body and Retry-After."""
    body = json.dumps(_whole(error, route)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(math.ceil(error.retry_after_s)).encode()))
    return [
        {"type": "http.response.start", "status": error.entry.http_status, "headers": headers},
        {"type": "http.response.body", "body": body},
    ]


def last_event(error: GuidedError, route: str, sequence: int) -> dict[str, Any]:
    """Return the ASGI message that ends an event stream with the error, in the format of its route.

    `sequence` is the number of events before it, which the Responses format tells with each.
    """
    if route == _RESPONSES:
        body = error.body()["error"]
        event = {"type": "error", **{name: body[name] for name in ("code", "message", "param")}}
        text = f"event: error\ndata: {json.dumps({**event, 'sequence_number': sequence})}\n\n"
    elif route == _MESSAGES:
        text = f"event: error\ndata: {json.dumps(_whole(error, route))}\n\n"
    else:
        text = f"data: {json.dumps(_whole(error, route))}\n\ndata: [DONE]\n\n"
    return {"type": "http.response.body", "body": text.encode()}


def _whole(error: GuidedError, route: str) -> dict[str, Any]:
    """Return the error's JSON object; Anthropic's clients look for a type beside it."""
    return {"type": "error", **error.body()} if route == _MESSAGES else dict(error.body())
