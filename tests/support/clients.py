"""Calls of client libraries as their documentation shows them: `python -m support.clients URL`.

Prints a line of JSON for each: what came of it (`values` or `error`) and what must (`schema` or `fails`).
"""

import asyncio
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import anthropic
import instructor
import openai
from instructor import Mode
from langchain_openai import ChatOpenAI
from pydantic import TypeAdapter
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from support.client_shapes import Card, Cat, Dog, Everyday, Home

AT_ONCE: Final = 6  # each is one or a few requests, and the engine takes no more in a batch
_BROKEN: Final = {"type": "object", "properties": {"age": {"type": "integr"}}, "required": ["age"]}
_UNENFORCED: Final = {
    "type": "object",
    "properties": {"ids": {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}},
    "required": ["ids"],
    "additionalProperties": False,
}
_PROMPT: Final = "Give me the JSON card for alice\n"
_MOST: Final = 900  # tokens, of the pod's 2,048, with white space between tokens of JSON
_GREEDY: Final[dict[str, Any]] = {"model": "tiny", "temperature": 0}
_MESSAGES: Final = [{"role": "user", "content": _PROMPT}]
_CHAT: Final[dict[str, Any]] = {**_GREEDY, "messages": _MESSAGES, "max_tokens": _MOST}
_RESPONSES: Final[dict[str, Any]] = {**_GREEDY, "input": _PROMPT, "max_output_tokens": _MOST}
_RESPONSES_CHAT: Final = {**_GREEDY, "messages": _MESSAGES, "max_output_tokens": _MOST}
_CLAUDE: Final[dict[str, Any]] = {
    "model": "tiny",
    "messages": _MESSAGES,
    "max_tokens": _MOST,
    "extra_body": {"temperature": 0},
}


def _openai(url: str) -> Any:
    """Return a client that asks once, so that no error is hidden by another try."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def _tool(shape: Any, **fields: Any) -> Any:
    """Return a tool as an application writes it by hand."""
    schema = shape if isinstance(shape, dict) else shape.model_json_schema()
    name = "ids" if isinstance(shape, dict) else shape.__name__.lower()
    return {"type": "function", "function": {"name": name, "parameters": schema, **fields}}


def _parse(url: str, **fields: Any) -> Sequence[Any]:
    answer = _openai(url).chat.completions.parse(**_CHAT | fields)
    return [choice.message.parsed for choice in answer.choices]


def _object(url: str) -> Sequence[Any]:
    asked = {"messages": [{"role": "user", "content": "Give me any JSON object for bob\n"}]}
    answer = _openai(url).chat.completions.create(**_CHAT | asked, response_format={"type": "json_object"})
    return [json.loads(answer.choices[0].message.content)]


def _call(url: str, tools: Sequence[Any], choice: Any = "required", how: str = "create") -> Sequence[Any]:
    ask = getattr(_openai(url).chat.completions, how)
    answer = ask(tools=tools, tool_choice=choice, **_CHAT)
    return [json.loads(call.function.arguments) for call in answer.choices[0].message.tool_calls or ()]


def _stream(url: str, delta: str, **fields: Any) -> Sequence[Any]:
    """Return what a chat's stream comes to; its pieces are all of it, in one where they precede the proof."""
    with _openai(url).chat.completions.stream(**_CHAT, **fields) as stream:
        found = [one for one in stream if one.type == delta]
        message = stream.get_final_completion().choices[0].message
    text = message.content or "".join(call.function.arguments for call in message.tool_calls)
    assert "".join(one.arguments_delta if delta == _DELTA else one.delta for one in found) == text
    return [json.loads(text)]


def _responses_stream(url: str) -> Sequence[Any]:
    with _openai(url).responses.stream(text_format=Card, **_RESPONSES) as stream:
        pieces = [one.delta for one in stream if one.type == "response.output_text.delta"]
        answer = stream.get_final_response()
    assert "".join(pieces) == answer.output_text != ""
    return [answer.output_parsed]


def _responses_tool(url: str) -> Sequence[Any]:
    tool = {"type": "function", **openai.pydantic_function_tool(Home)["function"]}
    answer = _openai(url).responses.parse(tools=[tool], tool_choice="required", **_RESPONSES)
    return [item.parsed_arguments for item in answer.output if item.type == "function_call"]


def _broken(url: str, **fields: Any) -> Sequence[Any]:
    form = {"type": "json_schema", "json_schema": {"name": "broken", "schema": _BROKEN, "strict": True}}
    return [*_openai(url).chat.completions.create(response_format=form, **_CHAT, **fields)]


def _broken_responses(url: str) -> Sequence[Any]:
    form = {"type": "json_schema", "name": "broken", "schema": _BROKEN, "strict": True}
    return [_openai(url).responses.create(text={"format": form}, **_RESPONSES)]


def _claude(url: str) -> Any:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0).messages


def _claude_stream(url: str, **fields: Any) -> Sequence[Any]:
    with _claude(url).stream(**_CLAUDE, **fields) as stream:
        pieces = [getattr(one, "partial_json", "") or getattr(one, "text", "") for one in stream]
        message = stream.get_final_message()
    assert any(pieces)
    inputs = [block.input for block in message.content if block.type == "tool_use"]
    return inputs or [message.parsed_output]


def _claude_tool(shape: Any, choice: str, **fields: Any) -> dict[str, Any]:
    tool = {"name": "it", "input_schema": shape.model_json_schema(), **fields}
    named = {"name": "it", "disable_parallel_tool_use": True} if choice == "tool" else {}
    return {"tools": [tool], "tool_choice": {"type": choice, **named}}


def _claude_call(url: str) -> Sequence[Any]:
    answer = _claude(url).create(**_CLAUDE, **_claude_tool(Everyday, "any"))
    return [block.input for block in answer.content if block.type == "tool_use"]


def _instructor(url: str, mode: Mode, shape: Any, asked: dict[str, Any] = _CHAT) -> Sequence[Any]:
    # No retries: the first answer must do.
    made = instructor.from_openai(_openai(url), mode=mode)
    return [made.create(response_model=shape, max_retries=0, **asked)]


def _instructor_partial(url: str) -> Sequence[Any]:
    made = instructor.from_openai(_openai(url), mode=Mode.TOOLS)
    return [*made.create_partial(response_model=Card, max_retries=0, **_CHAT)][-1:]


def _agent(url: str, output: Any, model: Any = OpenAIChatModel, *, stream: bool = False) -> Sequence[Any]:
    served = model("tiny", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    settings: Any = {"temperature": 0, "max_tokens": _MOST}
    agent = Agent(served, output_type=output, retries=0, model_settings=settings)

    async def ask() -> Any:
        if not stream:
            return (await agent.run(_PROMPT)).output
        async with agent.run_stream(_PROMPT) as result:
            assert [piece async for piece in result.stream_output(debounce_by=None)]
            return await result.get_output()

    return [asyncio.run(ask())]


def _langchain(url: str, **fields: Any) -> Any:
    asked: Any = {"model": "tiny", "base_url": f"{url}/v1", "api_key": "none", "max_retries": 0}
    return ChatOpenAI(**asked, temperature=0, max_tokens=_MOST, **fields)


def _structured(url: str, shape: Any, method: Any, **fields: Any) -> Sequence[Any]:
    return [_langchain(url, **fields).with_structured_output(shape, method=method).invoke(_PROMPT)]


def _langchain_stream(url: str) -> Sequence[Any]:
    return [*_langchain(url).with_structured_output(Card, method="json_schema").stream(_PROMPT)][-1:]


def _langchain_tools(url: str) -> Sequence[Any]:
    answer: Any = _langchain(url).bind_tools([Cat, Dog], tool_choice="any").invoke(_PROMPT)
    assert not answer.invalid_tool_calls
    return [call["args"] for call in answer.tool_calls]


def _refused(param: str, code: str = "grammar_invalid") -> dict[str, Any]:
    return {"status": 400, "code": code, "param": param}


_AGE: Final = "properties.age.type"
_SCHEMA: Final = f"response_format.json_schema.schema.{_AGE}"
_UNIQUE: Final = "tools[0].function.parameters.properties.ids.uniqueItems"
_FORMAT: Final[Any] = {"format": {"type": "json_schema", "schema": _BROKEN}}
_NAMED: Final = {"type": "function", "function": {"name": "card"}}
_STRICT: Final = openai.pydantic_function_tool
_DELTA: Final = "tool_calls.function.arguments.delta"
# Each call, and what it must give: a value of a type, or an error with these fields.
CALLS: Final[dict[str, tuple[Callable[[str], Sequence[Any]], Any]]] = {
    "openai parse, n=2": (partial(_parse, response_format=Card, n=2, temperature=0.7, seed=1), Card),
    "openai parse": (partial(_parse, response_format=Everyday), Everyday),
    "openai stream": (partial(_stream, delta="content.delta", response_format=Card), Card),
    "openai json_object": (_object, dict[str, Any]),
    "openai tool by its name": (partial(_call, tools=[_tool(Card), _tool(Home)], choice=_NAMED), Card),
    "openai two tools": (partial(_call, tools=[_tool(Cat), _tool(Dog)]), Cat | Dog),
    "openai strict tool": (partial(_call, tools=[_STRICT(Everyday)], how="parse"), Everyday),
    "openai strict tool, stream": (
        partial(_stream, delta=_DELTA, tools=[_STRICT(Card)], tool_choice="required"),
        Card,
    ),
    "openai too few tokens": (
        partial(_parse, response_format=Card, max_tokens=3),
        {"class": "LengthFinishReasonError"},
    ),
    "openai broken": (_broken, _refused(_SCHEMA)),
    "openai broken, stream": (partial(_broken, stream=True), _refused(_SCHEMA)),
    "openai not enforced": (
        partial(_call, tools=[_tool(_UNENFORCED, strict=True)]),
        _refused(_UNIQUE, "grammar_unsupported"),
    ),
    "openai responses": (
        lambda url: [_openai(url).responses.parse(text_format=Everyday, **_RESPONSES).output_parsed],
        Everyday,
    ),
    "openai responses, stream": (_responses_stream, Card),
    "openai responses, strict tool": (_responses_tool, Home),
    "openai responses, broken": (_broken_responses, _refused(f"text.format.schema.{_AGE}")),
    "anthropic parse": (
        lambda url: [_claude(url).parse(output_format=Card, **_CLAUDE).parsed_output],
        Card,
    ),
    "anthropic stream": (partial(_claude_stream, output_format=Card), Card),
    "anthropic tool": (_claude_call, Everyday),
    "anthropic tool by its name, stream": (
        partial(_claude_stream, **_claude_tool(Home, "tool", strict=True)),
        Home,
    ),
    "anthropic broken": (
        lambda url: [_claude(url).create(output_config=_FORMAT, **_CLAUDE)],
        _refused(f"output_config.format.schema.{_AGE}"),
    ),
    "instructor TOOLS": (partial(_instructor, mode=Mode.TOOLS, shape=Everyday), Everyday),
    "instructor JSON_SCHEMA": (partial(_instructor, mode=Mode.JSON_SCHEMA, shape=Card), Card),
    "instructor RESPONSES_TOOLS": (
        partial(_instructor, mode=Mode.RESPONSES_TOOLS, shape=Card, asked=_RESPONSES_CHAT),
        Card,
    ),
    "instructor create_partial": (_instructor_partial, Card),
    "pydantic-ai tool": (partial(_agent, output=Everyday), Everyday),
    "pydantic-ai two tools": (partial(_agent, output=[Cat, Dog]), Cat | Dog),
    "pydantic-ai NativeOutput, stream": (partial(_agent, output=NativeOutput(Card), stream=True), Card),
    "pydantic-ai NativeOutput, responses": (
        partial(_agent, output=NativeOutput(Home), model=OpenAIResponsesModel),
        Home,
    ),
    "langchain function_calling": (partial(_structured, shape=Everyday, method="function_calling"), Everyday),
    "langchain json_schema, stream": (_langchain_stream, Card),
    "langchain json_schema, responses": (
        partial(_structured, shape=Home, method="json_schema", use_responses_api=True),
        Home,
    ),
    # Which asks for any object, whatever the shape.
    "langchain json_mode": (
        partial(_structured, shape={"title": "any", "type": "object"}, method="json_mode"),
        dict[str, Any],
    ),
    "langchain tools": (_langchain_tools, Cat | Dog),
}


def told(name: str, url: str) -> dict[str, Any]:
    """Return what one call gave, and what it had to."""
    call, gives = CALLS[name]
    schema = None if isinstance(gives, dict) else TypeAdapter(gives).json_schema()
    line: dict[str, Any] = {"call": name, "schema": schema, "fails": gives if schema is None else None}
    try:
        return line | {"values": TypeAdapter(Any).dump_python(call(url), mode="json")}
    except Exception as error:  # noqa: BLE001 - the test says which may come
        # The attributes that OpenAI's and Anthropic's errors have, the latter's from its body.
        body = getattr(error, "body", None)
        inner = body.get("error", {}) if isinstance(body, dict) else {}
        shown = {
            "class": type(error).__name__,
            "status": getattr(error, "status_code", None),
            "code": getattr(error, "code", None) or inner.get("code"),
            "param": getattr(error, "param", None) or inner.get("param"),
            "request_id": getattr(error, "request_id", None),
            "trace": traceback.format_exception(error)[-4:],
        }
        return line | {"error": shown}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of the libraries about each other
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for found in pool.map(told, CALLS, [sys.argv[1]] * len(CALLS)):
            sys.stdout.write(json.dumps(found) + "\n")
