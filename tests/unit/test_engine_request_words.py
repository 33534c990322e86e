"""Constraints in other servers' words: each is a refusal that says what to write, on each route."""

import json
from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import request_body, request_checks
from guided_engine.admission.gate import ROUTES

CHAT, COMPLETIONS, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/batch"
RESPONSES, MESSAGES, GENERATE = "/v1/responses", "/v1/messages", "/inference/v1/generate"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"name": "x", "schema": SCHEMA}
FORMAT = {"type": "json_schema", "json_schema": NAMED}
STRICT = {"type": "function", "function": {"name": "f", "strict": True}}
TOOL = {"type": "function", "function": {"name": "f"}, "regex": 1}


def read(body: dict[str, Any]) -> dict[str, Any]:
    given = request_body.read(json.dumps(body).encode())
    assert given is not None
    return given


def found(route: str, body: dict[str, Any]) -> GuidedError | None:
    given = read({"model": "m", "messages": [{"regex": 1}], "temperature": 0, **body})
    try:
        request_checks.check(route, given, 1 << 20)
    except GuidedError as error:
        return error
    return None


@pytest.mark.parametrize("route", sorted(ROUTES))
@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("guided_json", SCHEMA),
        ("guided_regex", "a+"),
        ("guided_decoding", {"regex": "a"}),
        ("guided_of_tomorrow", "x"),
        ("structured_output", {"regex": "a"}),
        ("response_fromat", FORMAT),
        ("GUIDED-JSON", SCHEMA),  # spellings of one word
        ("output_format", {"type": "json_schema", "schema": SCHEMA}),
        ("giuded_json", SCHEMA),
    ],
)
def test_a_renamed_or_misspelt_word_is_refused(route: str, word: str, value: Any) -> None:
    refusal = found(route, {word: value})
    assert refusal is not None
    assert refusal.path == word
    assert refusal.code is ErrorCode.REQUEST_UNKNOWN_CONSTRAINT
    assert "instead" in refusal.message


@pytest.mark.parametrize(
    ("route", "body", "write"),
    [
        (CHAT, {"guided_json": SCHEMA}, 'response_format: {"type": "json_schema", "json_schema": {"name"'),
        (BATCH, {"guided_regex": "a"}, 'structured_outputs: {"KIND": ...}'),
        (RESPONSES, {"guided_json": SCHEMA}, 'text: {"format": {"type": "json_schema", "name"'),
        (RESPONSES, {"response_format": FORMAT}, 'text: {"format"'),
        (MESSAGES, {"response_format": FORMAT}, 'output_config: {"format"'),
        (MESSAGES, {"structured_outputs": {"regex": "a"}}, 'output_config: {"format"'),
        (GENERATE, {"structured_outputs": {"regex": "a"}}, 'sampling_params: {"structured_outputs"'),
        (CHAT, {"guided_decoding_backend": "outlines"}, "vllm_xargs.guided_backend instead"),
        (CHAT, {"extra_body": {"guided_json": SCHEMA}}, "response_format: {"),
        (CHAT, {"tool_choise": "required"}, "tool_choice instead"),
        (COMPLETIONS, {"tools": [], "tool_choice": "required"}, "only /v1/chat/completions, /v1/responses"),
        # What routes read constraints in, in another spelling or of another route.
        (CHAT, {"vllm_xarg": {"guided_grammar": "card"}}, "response_format: {"),
        (GENERATE, {"vllm_xargs": {"guided_grammar": "card"}}, 'sampling_params: {"structured_outputs"'),
        (GENERATE, {"sampling_params": {"extraArgs": {"guided_grammar": "card"}}}, "sampling_params: {"),
        (CHAT, {"sampling_params": {"structured_outputs": {"regex": "a"}}}, "response_format: {"),
        (RESPONSES, {"Text": {"format": {"type": "json_schema", **NAMED}}}, 'text: {"format"'),
        (MESSAGES, {"outputConfig": {"format": {"type": "json_schema"}}}, "output_config: {"),
        (CHAT, {"extra_body": {"vllm_xargs": {"guided_grammar": "card"}}}, "response_format: {"),
        (CHAT, {"extra_body": {"tools": [STRICT]}}, "tools, at the top level of the body"),
        # What would hold the format, with it in other words, which vLLM's classes let pass.
        (RESPONSES, {"text": FORMAT}, 'text: {"format"'),
        (RESPONSES, {"text": {"guided_json": SCHEMA}}, 'text: {"format"'),
        (RESPONSES, {"text": {"format": {"type": "text"}, "schema": SCHEMA}}, 'text: {"format"'),
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
        (CHAT, {"response_format": {"type": "json_schema"}}, "json_schema.schema", "missing"),
        (
            CHAT,
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "shema": SCHEMA}}},
            "json_schema.shema",
            "ignored here",
        ),
        (
            CHAT,
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
            "json_schema.type",
            '{"name": NAME, "schema": SCHEMA}',
        ),
        *(
            (CHAT, {"response_format": {"type": kind, "format": SCHEMA}}, "format", "ignored here")
            for kind in ("text", "json_object", "json_schema")
        ),
        (RESPONSES, {"text": {"format": {"type": "text", "schema": SCHEMA}}}, "format.schema", "text: {"),
        (MESSAGES, {"output_config": {"format": {"schema": {}}}}, "format.schema", "empty"),
        (
            CHAT,
            {"structured_outputs": {"json": {}, "whitespace_pattern": " "}},
            "whitespace_pattern",
            "ignored",
        ),
        (CHAT, {"structured_outputs": {"jsn": SCHEMA}}, "jsn", 'write response_format: {"type"'),
        (RESPONSES, {"text": {"fromat": {"type": "json_schema", **NAMED}}}, "fromat", "text: {"),
        (
            RESPONSES,
            {"text": {"format": {"type": "json_schema", "json_schema": NAMED}}},
            "format.json_schema",
            '{"type": "json_schema", "name": NAME, "schema": SCHEMA}',
        ),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema"}}}, "format.schema", "missing"),
        (MESSAGES, {"output_config": {"schema": SCHEMA}}, "schema", "output_config: {"),
        (
            GENERATE,
            {"sampling_params": {"structured_outputs": {"jsn": 1}}},
            "structured_outputs.jsn",
            "write ",
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
    assert refusal.message.startswith(f"{refusal.path}: ")


@pytest.mark.parametrize(
    ("route", "body"),
    [
        *((route, {}) for route in sorted(ROUTES)),
        *(
            (route, {"user_data": {"format": "pdf"}, "options": {"num_predict": 3, "text": "x"}, "cfg": 1})
            for route in sorted(ROUTES)
        ),
        *((route, {"guided_json": None, "regex": "a+", "format": SCHEMA}) for route in sorted(ROUTES)),
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
        (CHAT, {"structured_outputs": {"regex": "a", "json": None, "whitespace_pattern": None}}),
        (RESPONSES, {"structured_outputs": {"json": {}}}),
        (CHAT, {"tools": [TOOL], "tool_choice": "auto", "vllm_xargs": {"guided_grammar": "card"}}),
        *((route, {"tool_choice": "required"}) for route in (CHAT, RESPONSES, MESSAGES)),
        (COMPLETIONS, {"tools": [], "tool_choice": "auto", "guided_decoding_backend": "auto"}),
        (MESSAGES, {"response_format": {"type": "text"}, "output_config": {"effort": "low"}}),
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
        '{"guided_json": {}}'.encode("utf-16"),
        b'\xef\xbb\xbf{"guided_json": {}}',
        b'{"guided_json": null, "guided_json": {}}',
    ],
)
def test_what_python_reads_is_read(text: bytes) -> None:
    """The judge is json.loads, by which vLLM reads: a word that it finds is never overlooked."""
    assert json.loads(text)["guided_json"] == {}
    body = request_body.read(text)
    assert body is not None
    with pytest.raises(GuidedError, match="guided_json: it is ignored here"):
        request_checks.check(CHAT, body, 1 << 20)


@pytest.mark.parametrize("text", [b"", b"[]", b"{"])
def test_what_is_no_json_object_is_left_to_vllm(text: bytes) -> None:
    assert request_body.read(text) is None


def test_what_is_nested_deeper_than_is_read_here_is_refused() -> None:
    """vLLM has less on its stack, and would read a constraint in words that nobody checked."""
    with pytest.raises(GuidedError) as refused:
        request_body.read(b'{"guided_json": {}, "a":' + b"[" * 200_000)
    assert refused.value.code == "request_invalid"


def test_a_word_is_found_among_thousands_of_keys() -> None:
    many = {f"response_forma{number}": 1 for number in range(1000)}  # to look for likeness takes long
    assert found(CHAT, many) is None
    refusal = found(CHAT, {**many, "guided_json": {}})
    assert refusal is not None
    assert refusal.path == "guided_json"
