"""The HTTP routes that serve guided requests, and the kinds of constraint: how to ask, what must come."""

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import jsonschema
from devtools import tinymodel
from devtools.tinytasks import task

from guided_contract.wire import Kind
from support import grammars

TIMEOUT_S = 120.0

CARD = json.loads(task("card").spec)
QUERY = task("query").spec
SQL = "SELECT (id|name|price|city)(, (id|name|price|city))* FROM (users|orders|items)"
LARK = 'start: "SELECT " COLUMN " FROM " TABLE\nCOLUMN: "id" | "name"\nTABLE: "users" | "orders"\n'
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "tag",
        "begin": "<card>",
        "content": {"type": "json_schema", "json_schema": CARD},
        "end": "</card>",
    },
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint, as `structured_outputs` takes it."""

    kind: Kind
    spec: Any
    prompt: str
    regex: str = ""  # of the same texts, where a grammar has them

    @property
    def field(self) -> dict[str, Any]:
        return {self.kind: self.spec}

    def check(self, text: str) -> None:
        """Fail unless the finished text meets the constraint, by something that did not make the masks."""
        match self.kind:
            case "json":
                jsonschema.validate(json.loads(text), self.spec)
            case "json_object":
                assert isinstance(json.loads(text), dict), text
            case "choice":
                assert text in self.spec
            case "structural_tag":
                inside = re.fullmatch("<card>(.*)</card>", text, re.DOTALL)
                assert inside, text
                jsonschema.validate(json.loads(inside[1]), CARD)
            case _:
                assert re.fullmatch(self.regex or self.spec, text), text


CONSTRAINTS = {
    "json": Constraint("json", CARD, task("card").prompt("alice")),
    "json_object": Constraint("json_object", True, task("free").prompt("bob")),
    "regex": Constraint("regex", task("code").spec, task("code").prompt("bob")),
    "choice": Constraint("choice", json.loads(task("tone").spec), task("tone").prompt("carol")),
    "EBNF": Constraint("grammar", QUERY, task("query").prompt("dan"), SQL),
    "Lark": Constraint("grammar", LARK, task("query").prompt("dan"), "SELECT (id|name) FROM (users|orders)"),
    "structural tag": Constraint("structural_tag", json.dumps(TAG), task("card").prompt("erin")),
}


@dataclass(frozen=True, slots=True)
class Route:
    """One route: the body of a request, the texts of its answer, whole or in pieces."""

    path: str
    body: Callable[[Constraint], dict[str, Any]]
    texts: Callable[[Any], list[str]]
    pieces: Callable[[list[dict[str, Any]]], list[str]] | None  # None: does not stream
    kinds: frozenset[str] = frozenset(CONSTRAINTS)

    def ask(self, url: str, constraint: Constraint, *, stream: bool = False, **fields: Any) -> httpx.Response:
        body = {"model": "tiny", **self.body(constraint), **fields, **({"stream": True} if stream else {})}
        return httpx.post(f"{url}{self.path}", json=body, timeout=TIMEOUT_S)

    def ask_by_name(self, url: str, name: str, constraint: Constraint) -> httpx.Response:
        """Ask for a grammar by its name, with a constraint's prompt and without the constraint."""
        body = {"model": "tiny", **self.body(constraint)}
        body.pop("output_config", None)
        sampling = body.get("sampling_params", body)
        sampling.pop("structured_outputs", None)
        sampling["vllm_xargs" if sampling is body else "extra_args"] = {"guided_grammar": name}
        return httpx.post(f"{url}{self.path}", json=body, timeout=TIMEOUT_S)

    def answers(self, response: httpx.Response) -> list[str]:
        """Return the texts of an answer, whole or streamed."""
        assert response.status_code == 200, response.text
        if response.headers["content-type"].startswith("text/event-stream"):
            assert self.pieces is not None
            return self.pieces(events(response))
        return self.texts(response.json())


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the data of a stream's events."""
    lines = (line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines if line != "[DONE]"]


@functools.cache
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tinymodel.models() / "tiny")


def _greedy(**fields: Any) -> dict[str, Any]:
    return {"temperature": 0, "max_tokens": 120, **fields}


def _messages(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def _tokens_in(constraint: Constraint) -> dict[str, Any]:
    sampling = _greedy(structured_outputs=constraint.field)
    ids = tokenizer().encode(constraint.prompt, add_special_tokens=False)
    return {"token_ids": ids, "sampling_params": sampling}


def _decoded(ids: list[int]) -> str:
    return str(tokenizer().decode(ids, skip_special_tokens=True))


def _by_choice(streamed: list[dict[str, Any]], piece: Callable[[dict[str, Any]], Any]) -> Iterator[list[Any]]:
    """Yield each choice's pieces, by its index."""
    choices = [choice for event in streamed for choice in event.get("choices", ())]
    for index in sorted({choice["index"] for choice in choices}):
        yield [piece(choice) for choice in choices if choice["index"] == index]


def variants() -> Iterator[dict[str, Any]]:
    """Yield requests of every form, for whichever route: guided, by name, with tools; half streamed."""
    guided = [route.body(CONSTRAINTS[kind]) for route in ROUTES.values() for kind in route.kinds]
    formats: list[dict[str, Any]] = [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "card", "schema": CARD, "strict": True}},
        TAG,
        json.loads(grammars.TAGS) | {"type": "structural_tag"},
    ]
    tool = {"name": "file_card", "strict": True, "parameters": CARD}
    chat = {"messages": _messages("x"), "max_tokens": 1}
    for wanted in formats:
        guided += [{"prompt": "x", "response_format": wanted}, chat | {"response_format": wanted}]
    for wanted in ({"type": "json_object"}, {"type": "json_schema", "name": "card", "schema": CARD}):
        guided.append({"input": "x", "text": {"format": wanted}})
    for choice in ("auto", "required", {"type": "function", "function": {"name": "file_card"}}):
        tools = {"tools": [{"type": "function", "function": tool}], "tool_choice": choice}
        guided += [chat | tools, chat | tools | {"response_format": formats[1]}]
        guided += [chat | tools | {"structured_outputs": one.field} for one in CONSTRAINTS.values()]
    guided.append({"input": "x", "tools": [{"type": "function", **tool}], "tool_choice": "required"})
    anthropic = {"name": "file_card", "strict": True, "input_schema": CARD}
    for kind in ("auto", "any", "tool"):
        guided.append(chat | {"tools": [anthropic], "tool_choice": {"type": kind, "name": "file_card"}})
    for body in [{"prompt": "x"}, chat, {"input": "x"}]:
        guided.append(body | {"vllm_xargs": {"guided_grammar": "card"}})
    for number, body in enumerate(guided):
        short = {limit: 1 for limit in ("max_tokens", "max_output_tokens") if limit in body}
        yield {"model": "tiny", **body, **short, "stream": number % 2 == 1}


ROUTES = {
    "completions": Route(
        "/v1/completions",
        lambda asked: _greedy(prompt=asked.prompt, structured_outputs=asked.field),
        lambda answer: [choice["text"] for choice in answer["choices"]],
        lambda streamed: ["".join(pieces) for pieces in _by_choice(streamed, lambda one: one["text"])],
    ),
    "chat": Route(
        "/v1/chat/completions",
        lambda asked: _greedy(messages=_messages(asked.prompt), structured_outputs=asked.field),
        lambda answer: [choice["message"]["content"] for choice in answer["choices"]],
        lambda streamed: [
            "".join(pieces) for pieces in _by_choice(streamed, lambda one: one["delta"].get("content") or "")
        ],
    ),
    "batch chat": Route(
        "/v1/chat/completions/batch",
        lambda asked: _greedy(messages=[_messages(asked.prompt)] * 2, structured_outputs=asked.field),
        lambda answer: [choice["message"]["content"] for choice in answer["choices"]],
        None,
    ),
    "Responses": Route(
        "/v1/responses",
        lambda asked: {
            "input": asked.prompt,
            "temperature": 0,
            "max_output_tokens": 120,
            "structured_outputs": asked.field,
        },
        lambda answer: [answer["output"][-1]["content"][0]["text"]],
        lambda streamed: [
            "".join(one["delta"] for one in streamed if one["type"] == "response.output_text.delta")
        ],
    ),
    "Anthropic messages": Route(
        "/v1/messages",
        lambda asked: {
            "messages": _messages(asked.prompt),
            "temperature": 0,
            "max_tokens": 120,
            "output_config": {"format": {"type": "json_schema", "schema": asked.spec}},
        },
        lambda answer: [answer["content"][0]["text"]],
        lambda streamed: [
            "".join(one["delta"]["text"] for one in streamed if one["type"] == "content_block_delta")
        ],
        frozenset({"json"}),
    ),
    "tokens in and out": Route(
        "/inference/v1/generate",
        _tokens_in,
        lambda answer: [_decoded(choice["token_ids"]) for choice in answer["choices"]],
        lambda streamed: [
            _decoded([token for ids in pieces for token in ids])
            for pieces in _by_choice(streamed, lambda one: one["token_ids"])
        ],
    ),
}
