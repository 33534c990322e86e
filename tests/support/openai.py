"""Requests to a served model, as an application sends them."""

import json
import threading
from typing import Any

import httpx

TIMEOUT_S = 120.0


def completion(url: str, prompt: str, *, trace_id: str = "", **fields: Any) -> httpx.Response:
    """Send one greedy completion to the model `tiny`, as part of a trace if one is named."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 100, "temperature": 0, **fields}
    headers = {"traceparent": f"00-{trace_id}-{'1' * 16}-01"} if trace_id else {}
    return httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=TIMEOUT_S)


def guided(url: str, prompt: str, kind: str, spec: Any, **fields: Any) -> httpx.Response:
    """Send one guided completion; `kind` and `spec` as in `structured_outputs`."""
    return completion(url, prompt, structured_outputs={kind: spec}, **fields)


def streamed_tokens(url: str, started: threading.Event, **fields: Any) -> int:
    """Send one streaming completion, say when its first token came, and return how many there were."""
    body = {"model": "tiny", "prompt": "x", "temperature": 0, "stream": True, **fields}
    body["stream_options"] = {"include_usage": True}
    tokens = 0
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=TIMEOUT_S) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                started.set()
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    return tokens


def text(response: httpx.Response) -> str:
    """Return the answer's text."""
    assert response.status_code == 200, response.text
    answer: str = response.json()["choices"][0]["text"]
    return answer


def error_code(response: httpx.Response) -> tuple[int, str]:
    """Return a refusal's status and code."""
    return response.status_code, json.loads(response.text)["error"]["code"]
