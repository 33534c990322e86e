"""What a response_format takes a tool takes; vLLM's own parsers read back the calls that are generated."""

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
from guided_grammar.registry import Backends
from guided_sidecar.grammar.prepare.jobs import load_of
from support import calls
from support.calls import BY_GUIDANCE, BY_XGRAMMAR, IN_ELEMENTS, Drawing
from support.worker_and_rank import EOS, WorkerAndRank

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


@pytest.fixture(scope="module")
def hermes() -> Server:
    tag = calls.tag_of("hermes", calls.request(_with(STRING)))
    return Server(tag)


@pytest.mark.parametrize(
    "schema", [*({"type": "string", "pattern": pattern} for pattern in PATTERNS), *TYPES], ids=json.dumps
)
def test_a_tool_takes_what_a_response_format_takes(hermes: Server, schema: Any) -> None:
    parameters = _with(schema)
    assert hermes.served("json", parameters)[0] == "guidance"
    asked = calls.request(parameters)
    backend, key = hermes.served("structural_tag", calls.tag_of("hermes", asked))
    assert backend == "guidance"
    judge = _judge(parameters)
    chance = random.Random(json.dumps(schema))
    texts = [text for text in (hermes.drawing.text(key, chance) for _ in range(3)) if text]
    for text in texts:
        read = _read("hermes", text, hermes.drawing, asked)
        assert len(read) == text.count('"arguments": ')
        assert all(map(judge.is_valid, read)), text


@pytest.mark.usefixtures("patched_tools")
def test_a_call_is_an_object_where_its_parameters_have_other_branches(hermes: Server) -> None:
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
    "^(a$|b)",
    "x|y",
    "^[^a]|b$",
    "[|]",
    r"^\W\D$",
    r"^[\W]$",
    "^a/b$",
    r"^\\$",
    r"a\$b",
    "^.$",
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


@pytest.fixture(scope="module")
def qwen() -> Server:
    tag = calls.tag_of("qwen_3_coder", calls.request(_with(STRING)))
    return Server(tag)


@pytest.mark.parametrize(
    "schema", [*map(_bounded, (*PATTERNS, *WRITTEN_OTHERWISE)), *TYPES, *REFERENCES], ids=json.dumps
)
@pytest.mark.usefixtures("patched_tools")
def test_an_element_holds_what_is_read_back(qwen: Server, schema: Any) -> None:
    parameters = {**_with(schema), "$defs": {"part": PART}}
    asked = calls.request(parameters)
    try:
        backend, key = qwen.served("structural_tag", calls.tag_of("qwen_3_coder", asked))
    except GuidedError as refused:
        assert "from tools of this parser" in refused.message or "uniqueItems" in refused.message  # noqa: PT017 - as good
        backend = "none"
    assert (backend == "guidance") == (schema not in BEYOND_ELEMENTS)
    judge = _judge(parameters)
    chance = random.Random(json.dumps(schema))
    for _ in range(3 if backend == "guidance" else 0):
        if text := qwen.drawing.text(key, chance):
            read = _read("qwen3_coder", text, qwen.drawing, asked)
            assert len(read) == text.count("<function=")
            assert all(judge.is_valid(one) or re.search("[eE][0-9+]{4}", str(one)) for one in read), text


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


def _is_named(token: bytes, text: bytes) -> bool:
    """Return whether one library alone may allow a token: docs/how-a-grammar-is-served.md names them."""
    if re.search(rb"[\t\r\n\x7f]|\\[u/]", token) or (text.endswith(b"-") and token.startswith(b"0")):
        return True
    try:
        token.decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return False


@pytest.mark.parametrize("choice", ["required"])
@pytest.mark.parametrize("model", BY_GUIDANCE)
def test_both_libraries_mean_the_same_by_a_tag(model: str, choice: str) -> None:
    """Whole masks along drawn texts, but where llguidance prefers one token for a text that must come."""
    plain = {**_with(INTEGER), "properties": {"v": INTEGER, "s": STRING}}
    tag = calls.tag_of(model, calls.request(plain, choice))
    _, words = calls.vocabulary_of(tag)
    libraries = [Backends(words)[name] for name in ("guidance", "xgrammar")]
    tokens = libraries[0].tokens()
    named = [number for number, text in enumerate(words.tokens) if text.startswith(b"\xff")]
    added = [number for number, text in enumerate(tokens) if re.fullmatch(rb"</?[a-z_:]+>", text)]
    for seed in range(2):
        chance, text = random.Random(seed), b""
        matchers = [one.compile("structural_tag", json.dumps(tag)).matcher() for one in libraries]
        for _ in range(60):
            ours, theirs = (set(calls.allowed(matcher, len(tokens))) for matcher in matchers)
            if len(ours) > 1:
                spelt = [words.tokens[token].removeprefix(b"\xff") for token in ours & {*named, *added}]
                differing = {
                    token
                    for token in (ours ^ theirs) - {*named, *added}
                    if not any(one.startswith(tokens[token]) for one in spelt)
                }
                # A character that is cut in its bytes is followed by the rest of it alone.
                is_cut = text.decode(errors="ignore").encode() != text
                if model in IN_ELEMENTS:  # xgrammar has white space around values, and marks in texts
                    differing -= theirs
                assert is_cut or all(_is_named(tokens[token], text) for token in differing), text
            among = sorted((ours & theirs) - {EOS})
            if not among:
                break
            marks = [token for token in among if any(mark in tokens[token] for mark in b'<{}"[|')]
            token = chance.choice(marks if marks and chance.random() < 0.7 else among)
            text += tokens[token]
            assert all(matcher.accept([token]) for matcher in matchers)


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


def test_each_parser_with_a_structural_tag_is_known() -> None:
    """A later vLLM may have another: docs/routes.md says what becomes of its calls."""
    from vllm.tool_parsers.abstract_tool_parser import ToolParserManager

    known = {name for models in (BY_GUIDANCE, BY_XGRAMMAR) for names in models.values() for name in names}
    for name in ToolParserManager.lazy_parsers:
        is_tagged = ToolParserManager.get_tool_parser(name).structural_tag_model is not None
        assert is_tagged == (name in known), name


ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string", "format": "date"}},
    "required": ["answer"],
}


def _adjusted(parser: str | None, tokenizer: Any, **fields: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.abstract_parser import DelegatingParser
    from vllm.tool_parsers.abstract_tool_parser import ToolParserManager

    schema = {"name": "a", "schema": ANSWER}
    body = {
        "messages": [],
        "tools": [{"type": "function", "function": {"name": "get", "parameters": _with(INTEGER), **fields}}],
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    asked = ChatCompletionRequest.model_validate(body)

    class OfModel(DelegatingParser):
        tool_parser_cls = ToolParserManager.get_tool_parser(parser) if parser else None

    made = OfModel(tokenizer, asked.tools)
    return made.adjust_request(asked)


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
        assert re.fullmatch(r"[-0-9a-fA-F]+", json.loads(text)["answer"])
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
