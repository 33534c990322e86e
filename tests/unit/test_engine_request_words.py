"""Constraints in other servers' words: each is a refusal that says what to write, on each route."""

import difflib
import json
from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import client_paths, error_responses, trace
from guided_engine.admission.exchange import HttpExchange
from guided_engine.admission.gate import ROUTES
from guided_engine.admission.request_body import RequestBody, keys_of
from guided_engine.admission.request_words import Fault, fault

CHAT, COMPLETIONS, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/batch"
RESPONSES, MESSAGES, GENERATE = "/v1/responses", "/v1/messages", "/inference/v1/generate"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"name": "x", "schema": SCHEMA}
FORMAT = {"type": "json_schema", "json_schema": NAMED}


def found(route: str, body: dict[str, Any]) -> Fault | None:
    keys = keys_of(json.dumps({"model": "m", "messages": [{"regex": 1}], "temperature": 0, **body}).encode())
    assert keys is not None
    return fault(route, keys)


@pytest.mark.parametrize("route", sorted(ROUTES))
@pytest.mark.parametrize(
    ("word", "value", "kind"),
    [
        ("guided_json", SCHEMA, "json"),
        ("guided_json", json.dumps(SCHEMA), "json"),
        ("guided_regex", "a+", "regex"),
        ("guided_regex", "auto", "regex"),
        ("guided_choice", ["a", "b"], "choice"),
        ("guided_grammar", "root ::= x", "grammar"),
        ("guided_json_object", True, "json_object"),
        ("guided_whitespace_pattern", " ?", None),
        ("guided_decoding_backend", "xgrammar", None),
        ("guided_decoding", {"regex": "a"}, None),
        ("guided_of_tomorrow", "x", None),
        ("structured_output", {"regex": "a"}, None),
        ("response_fromat", FORMAT, None),
        ("structred_outputs", {"regex": "a"}, None),
        ("GUIDED-JSON", SCHEMA, "json"),  # spellings of one word
        ("guidedDecoding", {"regex": "a"}, None),
        ("output_format", {"type": "json_schema", "schema": SCHEMA}, "json"),
    ],
)
def test_a_renamed_or_misspelt_word_is_refused(route: str, word: str, value: Any, kind: Any) -> None:
    refusal = found(route, {word: value})
    assert refusal is not None
    assert (refusal.path, refusal.kind) == (word, kind)
    assert refusal.error.code is ErrorCode.REQUEST_UNKNOWN_CONSTRAINT
    assert "instead" in refusal.message or "remove it" in refusal.message


@pytest.mark.parametrize(
    ("route", "body", "write"),
    [
        (CHAT, {"guided_json": SCHEMA}, 'response_format: {"type": "json_schema", "json_schema": {"name"'),
        (BATCH, {"guided_regex": "a"}, 'structured_outputs: {"regex": ...}'),
        (RESPONSES, {"guided_json": SCHEMA}, 'text: {"format": {"type": "json_schema", "name"'),
        (RESPONSES, {"response_format": FORMAT}, 'text: {"format"'),
        (CHAT, {"text": {"format": {"type": "json_schema", **NAMED}}}, "response_format: {"),
        (MESSAGES, {"response_format": FORMAT}, 'output_config: {"format"'),
        (MESSAGES, {"output_format": {"type": "json_schema", "schema": SCHEMA}}, 'output_config: {"format"'),
        (MESSAGES, {"structured_outputs": {"regex": "a"}}, 'output_config: {"format"'),
        (MESSAGES, {"guided_regex": "a"}, 'structured_outputs: {"regex": ...} on /v1/chat/completions'),
        (GENERATE, {"structured_outputs": {"regex": "a"}}, 'sampling_params: {"structured_outputs"'),
        (GENERATE, {"sampling_params": {"guided_decoding": {"json": {}}}}, 'sampling_params: {"structured_'),
        (CHAT, {"guided_decoding_backend": "outlines"}, 'vllm_xargs: {"guided_backend": "xgrammar"}'),
        (CHAT, {"extra_body": {"guided_json": SCHEMA}}, "response_format: {"),
        (CHAT, {"extra_body": {"structured_outputs": {"regex": "a"}}}, "structured_outputs: {"),
        (CHAT, {"sampling_params": {"guided_grammar": "root ::= x"}}, 'structured_outputs: {"grammar": ...}'),
        (CHAT, {"tool_choise": "required"}, "did you mean tool_choice?"),
        (COMPLETIONS, {"tool_choise": "required"}, "did you mean tool_choice?"),
        (COMPLETIONS, {"tools": [], "tool_choice": "required"}, "only /v1/chat/completions, /v1/responses"),
        (GENERATE, {"tool_choice": {"type": "function"}}, "only /v1/chat/completions"),
        # What would hold the format, with it in other words, which vLLM's classes let pass.
        (RESPONSES, {"text": FORMAT}, 'text: {"format"'),
        (RESPONSES, {"text": {"structured_outputs": {"regex": "a"}}}, 'text: {"format"'),
        (RESPONSES, {"text": {"guided_json": SCHEMA}}, 'text: {"format"'),
        (RESPONSES, {"text": {"FORMAT": FORMAT}}, 'text: {"format"'),
        (RESPONSES, {"text": {"format": {"type": "text"}, "schema": SCHEMA}}, 'text: {"format"'),
        (MESSAGES, {"output_config": {"json_schema": SCHEMA}}, 'output_config: {"format"'),
        (MESSAGES, {"output_config": {"response_format": FORMAT}}, 'output_config: {"format"'),
    ],
)
def test_the_refusal_says_what_to_write_on_that_route(route: str, body: dict[str, Any], write: str) -> None:
    refusal = found(route, body)
    assert refusal is not None
    assert f"write {write}" in refusal.message or write in refusal.message


@pytest.mark.parametrize(
    ("route", "body", "path", "words"),
    [
        (CHAT, {"response_format": {"type": "json_object", "schema": SCHEMA}}, "schema", "json_schema"),
        (CHAT, {"response_format": {"type": "json_schema", "schema": SCHEMA}}, "schema", "json_schema"),
        (CHAT, {"response_format": {"type": "json_schema"}}, "json_schema.schema", "missing"),
        (
            CHAT,
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "shema": SCHEMA}}},
            "json_schema.shema",
            "no such key",
        ),
        (
            CHAT,
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
            "json_schema.type",
            '{"name": NAME, "schema": SCHEMA}',
        ),
        (CHAT, {"response_format": {"type": "regex", "value": "a"}}, "type", 'structured_outputs: {"regex"'),
        (BATCH, {"response_format": {"type": "grammar", "grammar": "x"}}, "type", "structured_outputs: {"),
        (CHAT, {"response_format": {"type": "text", "schema": SCHEMA}}, "schema", "response_format: {"),
        (CHAT, {"response_format": "json"}, "", "no object"),
        (CHAT, {"structured_outputs": {"jsn": SCHEMA}}, "jsn", "the keys are choice, grammar, json"),
        (CHAT, {"structured_outputs": {"json": SCHEMA, "backend": "x"}}, "backend", "the keys are"),
        (CHAT, {"structured_outputs": {"json": SCHEMA, "strictness": 1}}, "strictness", "the keys are"),
        (RESPONSES, {"text": {"fromat": {"type": "json_schema", **NAMED}}}, "fromat", "text: {"),
        (
            RESPONSES,
            {"text": {"format": {"type": "json_schema", "json_schema": NAMED}}},
            "format.json_schema",
            '{"type": "json_schema", "name": NAME, "schema": SCHEMA}',
        ),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema"}}}, "format.schema", "missing"),
        (
            MESSAGES,
            {"output_config": {"format": {"type": "json_schema", "json_schema": SCHEMA}}},
            "format.json_schema",
            "output_config: {",
        ),
        (MESSAGES, {"output_config": {"schema": SCHEMA}}, "schema", "output_config: {"),
        (
            GENERATE,
            {"sampling_params": {"structured_outputs": {"jsn": 1}}},
            "structured_outputs.jsn",
            "the keys are",
        ),
    ],
)
def test_a_misspelt_constraint_is_told_by_its_path(
    route: str, body: dict[str, Any], path: str, words: str
) -> None:
    refusal = found(route, body)
    assert refusal is not None
    assert refusal.path == ".".join([*body, *([path] if path else [])])
    assert words in refusal.message
    assert refusal.error.message.startswith(f"{refusal.path}: ")


@pytest.mark.parametrize("route", sorted(ROUTES))
@pytest.mark.parametrize(
    "body",
    [
        {"regex": "a+", "ebnf": "root ::= x", "json_schema": "{}"},  # SGLang's
        {"format": SCHEMA, "grammar": "root ::= x", "response_schema": SCHEMA},
        {"functions": [{"name": "f"}], "options": {"format": "json"}, "nvext": {"guided_json": SCHEMA}},
    ],
)
def test_words_of_other_servers_are_vllms_to_ignore(route: str, body: dict[str, Any]) -> None:
    """They are named in a header of the response: test_engine_middleware.py."""
    assert found(route, body) is None


@pytest.mark.parametrize(
    ("route", "body"),
    [
        *((route, {}) for route in sorted(ROUTES)),
        *(
            (route, {"user_data": {"format": "pdf"}, "options": {"num_predict": 3, "text": "x"}, "cfg": 1})
            for route in sorted(ROUTES)
        ),
        *((route, {"cfg": 1.5, "format": "text", "json_mode": False}) for route in sorted(ROUTES)),
        (CHAT, {"metadata": {"response_format": "x"}, "chat_template_kwargs": {"response_format": {}}}),
        *(
            (route, {"guided_json": None, "regex": None, "format": "", "functions": None})
            for route in sorted(ROUTES)
        ),
        *(
            (route, {"user": "guided_json", "metadata": {"regex": "a"}, "stop": ["format"]})
            for route in sorted(ROUTES)
        ),
        *(
            (CHAT, {"response_format": one})
            for one in (None, FORMAT, {"type": "text"}, {"type": "json_object"})
        ),
        (
            CHAT,
            {"response_format": {**FORMAT, "json_schema": {**NAMED, "strict": True, "description": None}}},
        ),
        (CHAT, {"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}}),
        (CHAT, {"response_format": {"type": "structural_tag", "structures": [], "triggers": []}}),
        (CHAT, {"structured_outputs": {"regex": "a", "json": None, "whitespace_pattern": "x"}}),
        (CHAT, {"tools": [{"regex": 1}], "tool_choice": "auto", "vllm_xargs": {"guided_grammar": "card"}}),
        (
            CHAT,
            {"text": {"verbosity": "low"}, "extra_body": {"top_k": 3}, "nvext": None, "sampling_params": {}},
        ),
        *((route, {"tool_choice": "required"}) for route in (CHAT, RESPONSES, MESSAGES)),
        (COMPLETIONS, {"tools": [], "tool_choice": "auto", "guided_decoding_backend": "auto"}),
        (MESSAGES, {"response_format": {"type": "text"}, "output_config": {"effort": "low"}}),
        (MESSAGES, {"outputConfig": {"effort": "low"}}),
        (RESPONSES, {"text": {"format": {"type": "text"}, "verbosity": "low"}}),
        (RESPONSES, {"text": {"format": {"type": "json_schema", **NAMED, "strict": True}}}),
        (MESSAGES, {"output_config": {"format": {"schema": SCHEMA}}}),
        (GENERATE, {"sampling_params": {"structured_outputs": {"json": {}, "_backend": None}, "n": 1}}),
        ("/v1/audio/transcriptions", {"response_format": "json"}),
    ],
)
def test_what_asks_for_nothing_or_rightly_passes(route: str, body: dict[str, Any]) -> None:
    assert found(route, body) is None


@pytest.mark.parametrize(
    "text",
    [
        b'{"guided\\u005fjson": {}}',
        b'{"prompt": NaN, "guided_json": {}}',
        b'{"prompt": "\\ud800", "guided_json": {}}',
        '{"guided_json": {}}'.encode("utf-16"),
        b'\xef\xbb\xbf{"guided_json": {}}',
        b'{"guided_json": null, "guided_json": {}}',
    ],
)
def test_what_python_reads_is_read(text: bytes) -> None:
    """The judge is json.loads, by which vLLM reads: a word that it finds is never overlooked."""
    assert json.loads(text)["guided_json"] == {}
    keys = keys_of(text)
    assert keys is not None
    assert fault(CHAT, keys) is not None


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b"\xff\xfe", b'{"a":' + b"[" * 200_000])
def test_what_is_no_json_object_is_left_to_vllm(text: bytes) -> None:
    assert keys_of(text) is None


def test_thousands_of_keys_are_compared_with_known_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likeness takes a hundred times as long, and what was compared is remembered."""
    monkeypatch.setattr(difflib, "get_close_matches", lambda *_: pytest.fail("likeness was looked for"))
    many = {f"response_forma{number}": 1 for number in range(1000)}
    assert found(CHAT, many) is None
    assert found(CHAT, {"x" * 100_000: 1}) is None
    for word in ("guided_json", "guided_" + "x" * 100_000):
        refusal = found(CHAT, {**many, word: {}})
        assert refusal is not None
        assert refusal.path == word
        assert len(refusal.error.message) < 1000


def test_a_body_is_read_once_with_its_last_chunk() -> None:
    body = RequestBody()
    text = json.dumps({"guided_json": {}, "prompt": "x" * 100}).encode()
    pieces = [text[start : start + 7] for start in range(0, len(text), 7)]
    for piece in pieces[:-1]:
        assert body.take({"type": "http.request", "body": piece, "more_body": True}) is None
    assert body.take({"type": "http.request", "body": pieces[-1], "more_body": False}) == text
    assert body.take({"type": "http.disconnect"}) is None


PARAMETERS = {"type": "object", "properties": {"a b": {"type": "strng"}, "c": {"$ref": "#/$defs/d"}}}
OTHER = {"type": "object", "properties": {"other": {"type": "integer"}}}
TAG = {"format": {"tags": [{"content": {"type": "any_text"}}, {"content": {"json_schema": PARAMETERS}}]}}
IN_TAG = "$.format.tags[1].content.json_schema"


def told(kind: Any, spec: Any, path: str, body: dict[str, Any], route: str = CHAT) -> dict[str, Any]:
    """Return the error's body that a client gets for a fault at a path of a grammar."""
    exchange = HttpExchange(trace.begin([], 1), "POST", route)
    exchange.kind, exchange.spec = kind, spec if isinstance(spec, str) else json.dumps(spec)
    keys = keys_of(json.dumps(body).encode())
    assert keys is not None
    exchange.written = client_paths.written(keys)
    error = GuidedError(ErrorCode.GRAMMAR_INVALID, f"{path}: no\n{path}: neither", path=path)
    return dict(json.loads(error_responses.response(error, exchange)[1]["body"])["error"])


def function(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def test_what_is_not_enforced_of_tools_is_named_in_the_clients_place() -> None:
    exchange = HttpExchange(trace.begin([], 1), "POST", CHAT)
    exchange.kind, exchange.spec = "structural_tag", json.dumps(TAG)
    keys = keys_of(json.dumps({"tools": [function(OTHER), function(PARAMETERS)]}).encode())
    assert keys is not None
    exchange.written = client_paths.written(keys)
    exchange.unenforced = [f"{IN_TAG}.properties.c", "$.format"]
    assert client_paths.unenforced(exchange) == [
        "tools[1].function.parameters.properties.c",
        "$.format",
    ]


UNTYPED = {"properties": PARAMETERS["properties"], "$defs": {"d": {"type": "x"}}}


@pytest.mark.parametrize(
    ("kind", "spec", "path", "body", "expected"),
    [
        (
            "structural_tag",
            TAG,
            f"{IN_TAG}.properties['a b'].type",
            {"tools": [function(OTHER), function(PARAMETERS)]},
            "tools[1].function.parameters.properties['a b'].type",
        ),
        (
            "structural_tag",
            TAG,
            f"{IN_TAG}.properties.c",
            {"tools": [{"type": "function", "name": "f", "parameters": PARAMETERS}]},
            "tools[0].parameters.properties.c",
        ),
        (
            "structural_tag",
            TAG,
            IN_TAG,
            {"tools": [{"name": "f", "input_schema": UNTYPED}]},  # vLLM gives it a type
            "tools[0].input_schema",
        ),
        (
            "json",
            {"items": {"anyOf": [{"properties": {"parameters": PARAMETERS}}]}, "$defs": UNTYPED["$defs"]},
            "$.$defs.d.type",
            {"tools": [function(UNTYPED)]},  # vLLM moves $defs
            "tools[0].function.parameters.$defs.d.type",
        ),
        (
            "structural_tag",
            {"format": {"json_schema": PARAMETERS["properties"]["a b"]}},
            "$.format.json_schema.type",
            {"tools": [function(PARAMETERS)]},  # a format with a schema for each argument
            "tools[0].function.parameters.properties['a b'].type",
        ),
        (
            "json",
            SCHEMA,
            "$.properties.a",
            {"response_format": FORMAT},
            "response_format.json_schema.schema.properties.a",
        ),
        (
            "json",
            SCHEMA,
            "$",
            {"structured_outputs": {"json": json.dumps(SCHEMA)}},
            "structured_outputs.json",
        ),
        ("json", SCHEMA, "$.type", {"text": {"format": {"schema": SCHEMA}}}, "text.format.schema.type"),
        (
            "json",
            SCHEMA,
            "$",
            {"output_config": {"format": {"schema": SCHEMA}}},
            "output_config.format.schema",
        ),
        (
            "json",
            SCHEMA,
            "$.type",
            {"sampling_params": {"structured_outputs": {"json": SCHEMA}}},
            "sampling_params.structured_outputs.json.type",
        ),
        ("choice", ["a"], "$", {"structured_outputs": {"choice": ["a"]}}, "structured_outputs.choice"),
        ("regex", "(", "$", {"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ("json", {"named": 1}, "$.a", {"vllm_xargs": {}}, "$.a"),
        ("json", {"other": 1}, "$.a", {"tools": "no list", "response_format": 1}, "$.a"),
    ],
)
def test_a_fault_is_told_where_the_client_wrote_it(
    kind: Any, spec: Any, path: str, body: dict[str, Any], expected: str
) -> None:
    error = told(kind, spec, path, body)
    assert error["param"] == expected
    assert error["message"] == f"{expected}: no\n{expected}: neither"


@pytest.mark.parametrize(("number", "is_found"), [(5, True), (9_999, False)])
def test_only_so_many_schemas_are_looked_at_for_a_place(number: int, *, is_found: bool) -> None:
    """Meanwhile nobody else is served."""
    wide = {"properties": {f"p{number}": {"const": number} for number in range(10_000)}}
    spec = {"format": {"json_schema": {"const": number}}}
    error = told("structural_tag", spec, "$.format.json_schema.const", {"tools": [function(wide)]})
    place = f"tools[0].function.parameters.properties.p{number}.const"
    assert error["param"] == (place if is_found else "$.format.json_schema.const")


def test_a_deep_schema_keeps_its_path() -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"not": deep}
    assert told("json", deep, "$.not", {"structured_outputs": {"json": deep}})["param"].endswith(".not")
