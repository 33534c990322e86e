"""What a response_format takes a tool takes; vLLM's own parsers read back the calls that are generated."""

import functools
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from jsonschema import validators
from jsonschema.exceptions import ValidationError

from guided_contract.errors import GuidedError
from guided_sidecar.grammar.prepare.jobs import load_of
from support import calls
from support.calls import BY_GUIDANCE, BY_XGRAMMAR, Drawing
from support.worker_and_rank import WorkerAndRank

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own imports warn
PATTERNS = (
    *("^https?://", r"^[\w-]+$", r"^\S+$", "^.+$", r"\.py$", "^[^/]+/[^/]+$", "^(true|false)?$", "^a$|^b$"),
    *('^"x"$', r"^(?!0)\d+$", r"^\d{5}(-\d{4})?$", "^[a-f0-9]{40}$", r"^\$\d+(\.\d{2})?$"),
)
FORMATS = ("date-time", "date", "time", "duration", "uri", "hostname", "ipv4", "ipv6", "uuid", "email")
STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
PART = {"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "additionalProperties": False}
TYPES: tuple[Any, ...] = (
    *({"type": "string", "format": name} for name in FORMATS),
    *(STRING, INTEGER, {"type": "number"}, {"type": "boolean"}, {"type": "null"}, {"const": 0.1}),
    {"type": "integer", "multipleOf": 5},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 100},
    {"type": "string", "minLength": 2, "maxLength": 9},
    {"allOf": [PART, {"type": "object", "properties": {"b": STRING}}]},
    {"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b", "c"]}},
    {"type": "array", "uniqueItems": True, "items": STRING, "maxItems": 3},
    {"type": "array", "items": PART, "minItems": 1, "maxItems": 3},
    {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    {"oneOf": [{"const": 1}, {"type": "string"}]},
    {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2},
    {"type": "object", "additionalProperties": INTEGER},
    {"enum": ["é", 'a"b', 3, None]},
)


class Server(WorkerAndRank):
    """Of a tokenizer that has the tokens of a tag, with what draws calls."""

    def __init__(self, tag: Any) -> None:
        tokenizer, words = calls.vocabulary_of(tag)
        super().__init__(words)
        tokens = [b"" if text.startswith(b"\xff") else text for text in words.tokens]
        self.drawing = Drawing(self.ranks, tokens, tokenizer)

    def served(self, kind: Any, value: Any) -> tuple[str, str]:
        """Return the library that serves a grammar, and the grammar's key."""
        job = self.job(kind, value, is_proven=False)
        done = self.compiler.run(job)
        assert not self.ranks.load(load_of(job.key, done)).error
        return done.backend, job.key


def _with(schema: Any) -> Any:
    return {"type": "object", "properties": {"v": schema}, "required": ["v"], "additionalProperties": False}


def _pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """Judge as ECMA does, to which a digit is of ASCII, and no control character is white space."""
    if isinstance(value, str) and not re.search(pattern, value, re.ASCII):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _judge(schema: Any) -> Any:
    judge = validators.extend(jsonschema.Draft202012Validator, {"pattern": _pattern})
    return judge(schema, format_checker=jsonschema.FormatChecker(("email", "ipv4", "ipv6", "uuid")))


def _read(parser: str, text: str, drawing: Drawing, asked: Any) -> list[Any]:
    """Return the arguments that a parser of vLLM's reads of a text."""
    from vllm.tool_parsers.abstract_tool_parser import ToolParserManager

    found = ToolParserManager.get_tool_parser(parser)(drawing.tokenizer, asked.tools)
    read = found.extract_tool_calls(text, asked)
    assert all(call.function.name in calls.NAMES for call in read.tool_calls)
    return [json.loads(call.function.arguments) for call in read.tool_calls]


@functools.cache
def _server(model: str) -> Server:
    return Server(calls.tag_of(model, calls.request(_with(STRING))))


def _reads_back(model: str, parser: str, mark: str, parameters: Any) -> str:
    """Return the library that serves a tool's calls; of llguidance's, a parser of vLLM's reads what fits."""
    server, asked, judge = _server(model), calls.request(parameters), _judge(parameters)
    backend, key = server.served("structural_tag", calls.tag_of(model, asked))
    chance = random.Random(json.dumps(parameters))
    for _ in range(3 if backend == "guidance" else 0):
        if text := server.drawing.text(key, chance):
            read = _read(parser, text, server.drawing, asked)
            assert len(read) == text.count(mark)
            assert all(judge.is_valid(one) or re.search("[eE][0-9+]{4}", str(one)) for one in read), text
    return backend


@pytest.mark.parametrize(
    "schema", [*({"type": "string", "pattern": pattern} for pattern in PATTERNS), *TYPES], ids=json.dumps
)
def test_a_tool_takes_what_a_response_format_takes(schema: Any) -> None:
    assert _server("hermes").served("json", _with(schema))[0] == "guidance"
    assert _reads_back("hermes", "hermes", '"arguments": ', _with(schema)) == "guidance"


@pytest.mark.usefixtures("patched_tools")
def test_a_call_is_an_object_where_its_parameters_have_other_branches() -> None:
    hermes = _server("hermes")
    parameters = {"anyOf": [_with(INTEGER), STRING]}
    _, key = hermes.served("structural_tag", calls.tag_of("hermes", calls.request(parameters)))

    def takes(arguments: Any) -> bool:
        call = f'<tool_call>\n{{"name": "get", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
        tokens = hermes.drawing.tokenizer.encode(call, add_special_tokens=False)
        return bool(hermes.drawing.ranks.matcher(key, None).accept(tokens))

    assert takes({"v": 1})
    assert not any(map(takes, ("x", False, None, [], {}, {"v": "x"})))


# What a regex of Lark's has to say otherwise.
WRITTEN_OTHERWISE = (
    *("^(a$|b)", "x|y", "^[^a]|b$", "[|]", r"^\W\D$", r"^[\W]$", "^a/b$", r"^\\$", r"a\$b", "^.$"),
)


def _bounded(pattern: str) -> dict[str, Any]:
    """Return a schema of texts that end soon enough to be judged."""
    return {"type": "string", "pattern": pattern, "maxLength": 48}


# What no element of llguidance's holds: xgrammar serves it, with white space around it, or refuses it.
BEYOND_ELEMENTS = (
    *(_bounded(pattern) for pattern in ("^a$|^b$", r"^(?!0)\d+$", "^(a$|b)", "^[^a]|b$", r"^[\W]$")),
    *({"type": "string", "format": name} for name in ("duration", "uri", "ipv6", "email")),
    *(one for one in TYPES if not {"allOf", "oneOf"}.isdisjoint(one)),
    {"type": "array", "uniqueItems": True, "items": STRING, "maxItems": 3},
    {"enum": ["é", 'a"b', 3, None]},
)
REFERENCES: tuple[Any, ...] = (
    {"$ref": "#/$defs/part"},
    {"anyOf": [{"$ref": "#/$defs/part"}, {"type": "null"}]},
)


@pytest.mark.parametrize(
    "schema", [*map(_bounded, (*PATTERNS, *WRITTEN_OTHERWISE)), *TYPES, *REFERENCES], ids=json.dumps
)
@pytest.mark.usefixtures("patched_tools")
def test_an_element_holds_what_is_read_back(schema: Any) -> None:
    parameters = {**_with(schema), "$defs": {"part": PART}}
    try:
        backend = _reads_back("qwen_3_coder", "qwen3_coder", "<function=", parameters)
    except GuidedError as refused:
        assert "from tools of this parser" in refused.message or "uniqueItems" in refused.message  # noqa: PT017 - as good
        backend = "none"
    assert (backend == "guidance") == (schema not in BEYOND_ELEMENTS)


PARAMETERS = {
    "type": "object",
    "properties": {
        "when": {"type": "string", "format": "date"},
        "n": INTEGER,
        "s": {"type": "string", "maxLength": 8, "pattern": "^[a-z ]*$"},
        "q": {"type": "string", "maxLength": 4},
        "t": {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 3}},
    },
    "required": ["when"],
    "additionalProperties": False,
}
NAMED = {"type": "function", "function": {"name": "get"}}
UNREAD = ("kimi_k3",)  # whose tag requires no argument


@pytest.mark.parametrize("choice", ["auto", "required", NAMED], ids=["auto", "required", "named"])
@pytest.mark.parametrize("model", BY_GUIDANCE)
def test_each_parser_reads_back_what_is_generated(model: str, choice: Any) -> None:
    asked = calls.request(PARAMETERS, choice)
    tag = calls.tag_of(model, asked)
    server = Server(tag)
    backend, key = server.served("structural_tag", tag)
    assert backend == "guidance"
    if choice == "auto" or model == "harmony" or (model == "llama" and choice == "required"):
        return  # free text, in which a reader may see a call; gpt-oss's are read by another class
    judge = _judge(PARAMETERS)
    for seed in range(4):
        text = server.drawing.text(key, random.Random(seed))
        for parser in BY_GUIDANCE[model] if text else ():
            if parser not in UNREAD:
                read = _read(parser, text, server.drawing, asked)
                assert read
                assert all(map(judge.is_valid, read)), text


@pytest.mark.parametrize("model", BY_XGRAMMAR)
def test_other_forms_of_calls_are_xgrammars(model: str) -> None:
    plain = _with(INTEGER)
    tag = calls.tag_of(model, calls.request(plain))
    server = Server(tag)
    assert server.served("structural_tag", tag)[0] == "xgrammar"
    if model == "hy_v4":  # its arguments are free text
        return
    dated = _with({"type": "string", "format": "date"})
    with pytest.raises(GuidedError, match="remove it from tools of this parser") as refused:
        server.served("structural_tag", calls.tag_of(model, calls.request(dated)))
    assert re.search(r"json_schema\.properties\.v\.format$", refused.value.path or "")


def _adjusted(parser: str, tokenizer: Any, **fields: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.abstract_parser import DelegatingParser
    from vllm.tool_parsers.abstract_tool_parser import ToolParserManager

    tool = {"name": "get", "parameters": _with(INTEGER), **fields}
    answer = {"type": "json_schema", "json_schema": {"name": "a", "schema": _with(TYPES[1])}}
    body = {"messages": [], "tools": [{"type": "function", "function": tool}], "response_format": answer}
    asked = ChatCompletionRequest.model_validate(body)

    class OfModel(DelegatingParser):
        tool_parser_cls = ToolParserManager.get_tool_parser(parser)

    return OfModel(tokenizer, asked.tools).adjust_request(asked)


@pytest.mark.parametrize("fields", [{}, {"strict": True}], ids=["loose", "strict"])
@pytest.mark.parametrize(
    ("parser", "library"), [("hermes", "guidance"), ("llama3_json", "xgrammar"), ("kimi_k2", "guidance")]
)
@pytest.mark.usefixtures("patched_tools")
def test_a_call_or_an_answer_that_fits(parser: str, library: str, fields: Any) -> None:
    """To llguidance a call of llama's begins as an answer does; xgrammar follows both, and has no dates."""
    (model,) = (model for model, parsers in BY_GUIDANCE.items() if parser in parsers)
    tokenizer, _ = calls.vocabulary_of(calls.tag_of(model, calls.request(_with(INTEGER))))
    adjusted = _adjusted(parser, tokenizer, **fields)
    tag = json.loads(adjusted.structured_outputs.structural_tag)
    server = Server(tag)
    if library == "xgrammar":
        with pytest.raises(GuidedError, match="remove it from tools of this parser"):
            server.served("structural_tag", tag)
        tag = json.loads(json.dumps(tag).replace('"date"', '"uuid"'))
    backend, key = server.served("structural_tag", tag)
    assert backend == library
    drawn = [server.drawing.text(key, random.Random(seed)) for seed in range(12)]
    answers = [text for text in drawn if text.startswith("{") and '"name"' not in text]
    called = [text for text in drawn if text and text not in answers]
    assert answers
    assert called
    for text in answers:
        assert re.fullmatch(r"[-0-9a-fA-F]+", json.loads(text)["v"])
    for text in called if parser != "llama3_json" else ():
        read = _read(parser, text, server.drawing, adjusted)
        assert read
        assert not fields or all(map(_judge(_with(INTEGER)).is_valid, read))


@pytest.mark.usefixtures("patched_tools")
def test_a_parser_without_tags_refuses_both_together() -> None:
    from guided_engine.compat import refusals

    adjusted = _adjusted("pythonic", calls.vocabulary_of({})[0])
    error = refusals._loose_tools(adjusted)
    assert error is not None
    assert (error.code, error.path) == ("grammar_unsupported", "tools")
    assert "takes no response_format beside tools" in error.message
