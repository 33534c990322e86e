"""A gate, a request over HTTP that is before it, and requests as vLLM's own classes read them."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from guided_contract import wire
from guided_contract.config import PodConfig
from guided_engine.admission import headers
from guided_engine.admission.exchange import HttpExchange, current
from guided_engine.admission.gate import Gate
from guided_engine.admission.service_client import GrammarClient
from guided_engine.telemetry import Telemetry

CLASSES = {
    "/v1/chat/completions": ("openai.chat_completion", "ChatCompletionRequest"),
    "/v1/chat/completions/batch": ("openai.chat_completion", "BatchChatCompletionRequest"),
    "/v1/completions": ("openai.completion", "CompletionRequest"),
    "/v1/responses": ("openai.responses", "ResponsesRequest"),
    "/v1/messages": ("anthropic", "AnthropicMessagesRequest"),
    "/inference/v1/generate": ("scale_out.token_in_token_out", "GenerateRequest"),
}
# The least that each of them takes.
LEAST: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/chat/completions/batch": {"messages": [[{"role": "user", "content": "x"}]]},
    "/v1/completions": {"prompt": "x"},
    "/v1/responses": {"input": "x"},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5, "model": "m"},
    "/inference/v1/generate": {"token_ids": [1], "sampling_params": {"max_tokens": 3}},
}


def class_of(route: str) -> Any:
    module, name = CLASSES[route]
    return getattr(importlib.import_module(f"vllm.entrypoints.{module}.protocol"), name)


def request(route: str, **fields: Any) -> Any:
    return class_of(route).model_validate({**LEAST[route], **fields})


def chat(**fields: Any) -> Any:
    return request("/v1/chat/completions", **fields)


def responses(**fields: Any) -> Any:
    return request("/v1/responses", **fields)


def gate_of(pod: PodConfig, client: GrammarClient | None = None) -> Gate:
    made = client or GrammarClient(pod.service_socket, lambda: wire.Hello(role="api", pid=1, boot="b"))
    return Gate(pod, made, Telemetry(pod.telemetry_socket))


@contextlib.contextmanager
def asking(route: str | None) -> Iterator[HttpExchange]:
    """Be asked over HTTP on a route, None: otherwise."""
    exchange = HttpExchange(headers.begin([], 1), route or "")
    current.set(exchange if route else None)
    try:
        yield exchange
    finally:
        current.set(None)
