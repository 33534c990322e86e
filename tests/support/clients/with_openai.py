"""openai: chat completions and Responses."""

import json
from collections.abc import Sequence
from typing import Any, Final

import openai

from support.clients.cases import (
    BROKEN,
    MAX_TOKENS,
    PROMPT,
    UNENFORCED,
    Card,
    Cat,
    Dog,
    Everyday,
    Home,
    Order,
)

_CHAT: Final[dict[str, Any]] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": PROMPT}],
    "temperature": 0,
    "max_tokens": MAX_TOKENS,
}
_RESPONSES: Final[dict[str, Any]] = {
    "model": "tiny",
    "input": PROMPT,
    "temperature": 0,
    "max_output_tokens": MAX_TOKENS,
}
_BROKEN: Final[dict[str, Any]] = {
    "type": "json_schema",
    "json_schema": {"name": "broken", "schema": BROKEN, "strict": True},
}


def client(url: str) -> openai.OpenAI:
    """Return a client that asks once, so that no error is hidden by another try."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def tool(name: str, parameters: dict[str, Any], **fields: Any) -> Any:
    """Return a tool as an application writes it by hand."""
    function = {"name": name, "description": f"Takes a {name}.", "parameters": parameters, **fields}
    return {"type": "function", "function": function}


def called(message: Any) -> list[Any]:
    """Return the arguments of a message's calls, which are JSON texts."""
    return [json.loads(call.function.arguments) for call in message.tool_calls or ()]


def _parse(url: str, shape: Any = Card, **fields: Any) -> list[Any]:
    answer = client(url).chat.completions.parse(response_format=shape, **_CHAT | fields)
    return [choice.message.parsed for choice in answer.choices]


def _stream(url: str) -> Sequence[Any]:
    with client(url).chat.completions.stream(response_format=Order, **_CHAT) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        message = stream.get_final_completion().choices[0].message
    assert pieces  # what came before the proof comes in one
    assert "".join(pieces) == message.content
    return [message.parsed]


def _json_object(url: str) -> Sequence[Any]:
    messages = [{"role": "user", "content": "Give me any JSON object for bob\n"}]
    asked = {"response_format": {"type": "json_object"}, "messages": messages}
    answer = client(url).chat.completions.create(**_CHAT | asked)
    return [json.loads(answer.choices[0].message.content or "")]


def _tools(url: str, tools: Sequence[Any], choice: Any) -> Sequence[Any]:
    answer = client(url).chat.completions.create(tools=tools, tool_choice=choice, **_CHAT)
    return called(answer.choices[0].message)


def _function_tool(url: str, shape: Any) -> Sequence[Any]:
    tools = [openai.pydantic_function_tool(shape)]
    answer = client(url).chat.completions.parse(tools=tools, tool_choice="required", **_CHAT)
    return [call.function.parsed_arguments for call in answer.choices[0].message.tool_calls or ()]


def _function_tool_stream(url: str) -> Sequence[Any]:
    tools = [openai.pydantic_function_tool(Card)]
    with client(url).chat.completions.stream(tools=tools, tool_choice="required", **_CHAT) as stream:
        pieces = [e.arguments_delta for e in stream if e.type == "tool_calls.function.arguments.delta"]
        calls = stream.get_final_completion().choices[0].message.tool_calls or ()
    assert pieces  # what came before the proof comes in one
    assert "".join(pieces) == "".join(call.function.arguments for call in calls)
    return [call.function.parsed_arguments for call in calls]


def _responses(url: str) -> Sequence[Any]:
    return [client(url).responses.parse(text_format=Everyday, **_RESPONSES).output_parsed]


def _responses_stream(url: str) -> Sequence[Any]:
    with client(url).responses.stream(text_format=Order, **_RESPONSES) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        answer = stream.get_final_response()
    assert pieces  # what came before the proof comes in one
    assert "".join(pieces) == answer.output_text
    return [answer.output_parsed]


def _responses_tool(url: str) -> Sequence[Any]:
    function = openai.pydantic_function_tool(Home)["function"]
    tools: Any = [{"type": "function", **function}]
    answer = client(url).responses.parse(tools=tools, tool_choice="required", **_RESPONSES)
    return [item.parsed_arguments for item in answer.output if item.type == "function_call"]


def _broken_responses(url: str) -> Sequence[Any]:
    text: Any = {"format": {"type": "json_schema", "name": "broken", "schema": BROKEN, "strict": True}}
    return [client(url).responses.create(text=text, **_RESPONSES)]


def _broken(url: str, **fields: Any) -> Sequence[Any]:
    return [*client(url).chat.completions.create(response_format=_BROKEN, **_CHAT | fields)]


_PETS: Final = [tool(kind.__name__.lower(), kind.model_json_schema()) for kind in (Cat, Dog)]
_NAMED: Final = {"type": "function", "function": {"name": "order"}}
_CARD_OR_ORDER: Final = [tool(kind.__name__.lower(), kind.model_json_schema()) for kind in (Card, Order)]
_UNENFORCED: Final = tool("ids", UNENFORCED, strict=True)
CALLS: Final = {
    "chat.completions.parse, n=2": lambda url: _parse(url, n=2, temperature=0.7, seed=1),
    "chat.completions.parse, everyday types": lambda url: _parse(url, Everyday),
    "chat.completions.parse, too few tokens": lambda url: _parse(url, max_tokens=3),
    "chat.completions.stream": _stream,
    "response_format json_object": _json_object,
    "a tool by its name": lambda url: _tools(url, _CARD_OR_ORDER, _NAMED),
    "two tools, tool_choice required": lambda url: _tools(url, _PETS, "required"),
    "pydantic_function_tool (strict), everyday types": lambda url: _function_tool(url, Everyday),
    "pydantic_function_tool (strict), stream": _function_tool_stream,
    "a broken schema": _broken,
    "a broken schema, stream": lambda url: _broken(url, stream=True),
    "a tool that is not enforced": lambda url: _tools(url, [_UNENFORCED], "required"),
    "responses.parse, everyday types": _responses,
    "responses.stream": _responses_stream,
    "responses.parse, a strict tool": _responses_tool,
    "responses, a broken schema": _broken_responses,
}
