"""anthropic: messages."""

from collections.abc import Sequence
from typing import Any, Final

import anthropic

from support.clients.cases import BROKEN, MAX_TOKENS, PROMPT, Card, Everyday, Home, Order

_ASKED: Final[dict[str, Any]] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": PROMPT}],
    "max_tokens": MAX_TOKENS,
    "extra_body": {"temperature": 0},
}


def _client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def _tool(name: str, schema: Any, **fields: Any) -> Any:
    return {"name": name, "description": f"Takes a {name}.", "input_schema": schema, **fields}


def _parse(url: str) -> Sequence[Any]:
    return [_client(url).messages.parse(output_format=Card, **_ASKED).parsed_output]


def _stream(url: str) -> Sequence[Any]:
    with _client(url).messages.stream(output_format=Order, **_ASKED) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert pieces  # what came before the proof comes in one
    assert "".join(pieces) == "".join(block.text for block in message.content if block.type == "text")
    return [message.parsed_output]


def _any(url: str) -> Sequence[Any]:
    tools = [_tool("everyday", Everyday.model_json_schema())]
    answer = _client(url).messages.create(tools=tools, tool_choice={"type": "any"}, **_ASKED)
    return [block.input for block in answer.content if block.type == "tool_use"]


def _named(url: str) -> Sequence[Any]:
    tools = [_tool("home", Home.model_json_schema(), strict=True)]
    choice: Any = {"type": "tool", "name": "home", "disable_parallel_tool_use": True}
    with _client(url).messages.stream(tools=tools, tool_choice=choice, **_ASKED) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    assert pieces  # what came before the proof comes in one
    return [block.input for block in message.content if block.type == "tool_use"]


def _broken(url: str) -> Sequence[Any]:
    form: Any = {"format": {"type": "json_schema", "schema": BROKEN}}
    return [_client(url).messages.create(output_config=form, **_ASKED)]


CALLS: Final = {
    "messages.parse": _parse,
    "messages.stream, output_format": _stream,
    "a tool, everyday types": _any,
    "a strict tool by its name, stream": _named,
    "a broken schema": _broken,
}
