"""langchain-openai: each method of with_structured_output, and tools."""

from collections.abc import Sequence
from typing import Any, Final

from langchain_openai import ChatOpenAI

from support.clients.cases import MAX_TOKENS, PROMPT, Cat, Dog, Everyday, Home, Order


def _model(url: str, **fields: Any) -> ChatOpenAI:
    asked: Any = {"model": "tiny", "base_url": f"{url}/v1", "api_key": "none", "max_retries": 0}
    return ChatOpenAI(**asked, temperature=0, max_tokens=MAX_TOKENS, **fields)


def _structured(url: str, shape: Any, method: Any) -> Sequence[Any]:
    return [_model(url).with_structured_output(shape, method=method).invoke(PROMPT)]


def _stream(url: str) -> Sequence[Any]:
    pieces = list(_model(url).with_structured_output(Order, method="json_schema").stream(PROMPT))
    return [pieces[-1]]


def _responses(url: str) -> Sequence[Any]:
    model = _model(url, use_responses_api=True)
    return [model.with_structured_output(Home, method="json_schema").invoke(PROMPT)]


def _tools(url: str) -> Sequence[Any]:
    answer: Any = _model(url).bind_tools([Cat, Dog], tool_choice="any").invoke(PROMPT)
    assert not answer.invalid_tool_calls
    return [call["args"] for call in answer.tool_calls]


CALLS: Final = {
    "function_calling, everyday types": lambda url: _structured(url, Everyday, "function_calling"),
    "json_schema, stream": _stream,
    "json_schema by Responses": _responses,
    # Which asks for any object, whatever the shape.
    "json_mode": lambda url: _structured(url, {"title": "any", "type": "object"}, "json_mode"),
    "bind_tools, tool_choice any": _tools,
}
