"""Our errors on the wire: a response of their own, or the last event of a stream that has begun."""

import json
import math
from typing import Any

from guided_contract.errors import GuidedError


def response(error: GuidedError) -> list[dict[str, Any]]:
    """Return the ASGI messages of a complete response with the error's status, body and Retry-After."""
    body = json.dumps(error.body()).encode()
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
    body = error.body()["error"]
    if route == "/v1/responses":
        event = {"type": "error", **{name: body[name] for name in ("code", "message", "param")}}
        text = f"event: error\ndata: {json.dumps({**event, 'sequence_number': sequence})}\n\n"
    else:
        text = f"data: {json.dumps({'error': body})}\n\ndata: [DONE]\n\n"
    return {"type": "http.response.body", "body": text.encode()}
