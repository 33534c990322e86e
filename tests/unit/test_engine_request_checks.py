"""What is looked at in a body: constraints in other words and places, types, tools, one constraint alone."""

import json
from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import request_body, request_checks
from guided_engine.admission.gate import ROUTES

CHAT, COMPLETIONS, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/batch"
RESPONSES, MESSAGES, GENERATE = "/v1/responses", "/v1/messages", "/inference/v1/generate"
MOST = 1000  # bytes of a schema, in some tests
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"name": "x", "schema": SCHEMA}
FORMAT = {"type": "json_schema", "json_schema": NAMED}
JSON = {"type": "json_schema", **NAMED}
CARD = {"guided_grammar": "card"}
REGEX = {"regex": "a"}


def found(route: str, body: dict[str, Any], most_bytes: int = 1 << 18) -> GuidedError | None:
    whole = {"model": "m", "messages": [{"regex": 1}], "temperature": 0, **body}
    given = request_body.read(json.dumps(whole).encode())
    assert given is not None
    try:
        request_checks.check(route, given, most_bytes)
    except GuidedError as error:
        return error
    return None


def fault(route: str, body: dict[str, Any], most_bytes: int = 1 << 18) -> GuidedError:
    error = found(route, body, most_bytes)
    assert error is not None
    return error


def function(name: Any = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **fields}}


def flat(name: Any = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": SCHEMA, **fields}


def anthropic(name: Any = "f", **fields: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": SCHEMA, **fields}


def response_format(**fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", **fields}}


def text_format(**fields: Any) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", **fields}}}


def tools(*given: Any, choice: Any = None) -> dict[str, Any]:
    return {"tools": [*given], **({"tool_choice": choice} if choice else {})}


TOOL, STRICT = function(), function(strict=True)
OF_ROUTE: dict[str, Any] = {CHAT: function, RESPONSES: flat, MESSAGES: anthropic}


@pytest.mark.parametrize("route", sorted(ROUTES))
@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("guided_json", SCHEMA),
        ("guided_regex", "a+"),
        ("guided_decoding", REGEX),
        ("guided_of_tomorrow", "x"),
        ("structured_output", REGEX),
        ("response_fromat", FORMAT),
        ("GUIDED-JSON", SCHEMA),  # spellings of one word
        ("output_format", {"type": "json_schema", "schema": SCHEMA}),
        ("giuded_json", SCHEMA),
    ],
)
def test_a_renamed_or_misspelt_word_is_refused(route: str, word: str, value: Any) -> None:
    refusal = fault(route, {word: value})
    assert (refusal.path, refusal.code) == (word, ErrorCode.REQUEST_UNKNOWN_CONSTRAINT)
    assert "instead" in refusal.message


# Route, body, path of the fault, and words of the refusal: what to write on that route.
FAULTS: list[tuple[str, dict[str, Any], str, str]] = [
    (CHAT, {"guided_json": SCHEMA}, "guided_json", 'write response_format: {"type": "json_schema", "json_sc'),
    (BATCH, {"guided_regex": "a"}, "guided_regex", 'structured_outputs: {"KIND": ...}'),
    (RESPONSES, {"guided_json": SCHEMA}, "guided_json", 'write text: {"format": {"type": "json_schema"'),
    (RESPONSES, {"response_format": FORMAT}, "response_format", 'write text: {"format"'),
    (MESSAGES, {"response_format": FORMAT}, "response_format", 'write output_config: {"format"'),
    (MESSAGES, {"structured_outputs": REGEX}, "structured_outputs", 'write output_config: {"format"'),
    (GENERATE, {"structured_outputs": REGEX}, "structured_outputs", 'sampling_params: {"structured_outputs"'),
    (CHAT, {"guided_decoding_backend": "x"}, "guided_decoding_backend", "vllm_xargs.guided_backend instead"),
    (CHAT, {"extra_body": {"guided_json": SCHEMA}}, "extra_body.guided_json", "response_format: {"),
    (CHAT, {"tool_choise": "required"}, "tool_choise", "tool_choice instead"),
    (COMPLETIONS, {"tools": [], "tool_choice": "required"}, "tool_choice", "only /v1/chat/completions, "),
    # What routes read constraints in, in another spelling or of another route.
    (CHAT, {"vllm_xarg": CARD}, "vllm_xarg.guided_grammar", "response_format: {"),
    (GENERATE, {"vllm_xargs": CARD}, "vllm_xargs.guided_grammar", 'sampling_params: {"structured_outputs"'),
    (GENERATE, {"sampling_params": {"extraArgs": CARD}}, "sampling_params.extraArgs.guided_grammar", "write"),
    (CHAT, {"sampling_params": {"structured_outputs": REGEX}}, "sampling_params.structured_outputs", "write"),
    (RESPONSES, {"Text": {"format": JSON}}, "Text.format", 'text: {"format"'),
    (MESSAGES, {"outputConfig": {"format": JSON}}, "outputConfig.format", "output_config: {"),
    (CHAT, {"extra_body": {"vllm_xargs": CARD}}, "extra_body.vllm_xargs.guided_grammar", "write"),
    (CHAT, {"extra_body": {"tools": [STRICT]}}, "extra_body.tools", "tools, at the top level of the body"),
    # What would hold the format, with it in other words, which vLLM's classes let pass.
    (RESPONSES, {"text": FORMAT}, "text.json_schema", 'text: {"format"'),
    (RESPONSES, {"text": {"guided_json": SCHEMA}}, "text.guided_json", 'text: {"format"'),
    (RESPONSES, {"text": {"format": {"type": "text"}, "schema": SCHEMA}}, "text.schema", 'text: {"format"'),
    (MESSAGES, {"output_config": {"response_format": FORMAT}}, "output_config.response_format", "write"),
    # A constraint with a key of another form, or without one.
    (CHAT, response_format(), "response_format.json_schema.schema", "missing"),
    (CHAT, response_format(json_schema={"shema": 1}), "response_format.json_schema.shema", "ignored here"),
    (CHAT, response_format(json_schema=SCHEMA), "response_format.json_schema.type", '"name": NAME, "schema"'),
    *((CHAT, response_format(type=kind, format=SCHEMA), "response_format.format", "ignored here")
      for kind in ("text", "json_object", "json_schema")),
    (CHAT, response_format(type="json_object", schema=SCHEMA), "response_format.schema", "json_schema"),
    (RESPONSES, text_format(type="text", schema=SCHEMA), "text.format.schema", "text: {"),
    (MESSAGES, {"output_config": {"format": {"schema": {}}}}, "output_config.format.schema", "empty"),
    (CHAT, {"structured_outputs": {"json": {}, "whitespace_pattern": " "}},
     "structured_outputs.whitespace_pattern", "ignored"),
    (CHAT, {"structured_outputs": {"jsn": 1}}, "structured_outputs.jsn", 'write response_format: {"type"'),
    (RESPONSES, {"text": {"fromat": JSON}}, "text.fromat", "text: {"),
    (RESPONSES, text_format(json_schema=NAMED), "text.format.json_schema", '"name": NAME, "schema": SCHEMA}'),
    (MESSAGES, {"output_config": {"format": {"type": "json_schema"}}},
     "output_config.format.schema", "missing"),
    (MESSAGES, {"output_config": {"schema": SCHEMA}}, "output_config.schema", "output_config: {"),
    (GENERATE, {"sampling_params": {"structured_outputs": {"jsn": 1}}},
     "sampling_params.structured_outputs.jsn", "write "),
    # vLLM's own check of some of these ends with an error that breaks the connection.
    *((route, {name: value}, name, "it is not an object") for value in ("json", [], 0, True)
      for route in (CHAT, COMPLETIONS, BATCH, RESPONSES) for name in ("structured_outputs", "response_format")
      if (route, name) != (RESPONSES, "response_format")),
    # A tool's name is written into the grammar as it is, so it has no odd letters.
    *((route, tools(make(), make(name)), "tools[1].function.name" if route == CHAT else "tools[1].name", "")
      for route, make in OF_ROUTE.items() for name in ('a"b', "a\nb", "", 5)),
    # A tool of another form.
    (CHAT, tools({**TOOL, "strict": True}), "tools[0].strict", ""),
    (CHAT, tools(flat()), "tools[0].parameters", ""),
    (CHAT, tools(function(Strict=True)), "tools[0].function.Strict", ""),
    (RESPONSES, tools(flat(srict=True)), "tools[0].srict", ""),
    (MESSAGES, tools(anthropic("", type="web_search_20250305")), "tools[0].name", ""),
    # Two of a name, one of them strict, as vLLM takes it for true: they would be one grammar's alternatives.
    *((CHAT, tools(*given), "tools[1].function.name", "") for strict in (True, "true", 1)
      for given in ([function(strict=strict), TOOL], [TOOL, function(strict=strict)])),
    # A constraint that nobody reads.
    (CHAT, {"vllm_xargs": {"structured_outputs": "x"}}, "vllm_xargs.structured_outputs", ""),
    (CHAT, {"vllm_xargs": {"Guided_Grammar": "x"}}, "vllm_xargs.Guided_Grammar", ""),
    (COMPLETIONS, tools(STRICT), "tools", ""),
    ("/invocations", {"prompt": "x", **tools(STRICT)}, "tools", ""),
    (BATCH, tools(TOOL, choice="required"), "tool_choice", ""),
]  # fmt: skip


@pytest.mark.parametrize(("route", "body", "path", "words"), FAULTS)
def test_a_fault_is_told_by_its_path_and_what_to_write_there(
    route: str, body: dict[str, Any], path: str, words: str
) -> None:
    refusal = fault(route, body)
    assert refusal.path == path
    assert refusal.message.startswith(f"{path}: ")
    assert words in refusal.message


RIGHT: list[tuple[str, dict[str, Any]]] = [
    *((route, body) for route in sorted(ROUTES) for body in (
        {},
        {"user_data": {"format": "pdf"}, "options": {"num_predict": 3, "text": "x"}, "cfg": 1},
        {"guided_json": None, "regex": "a+", "format": SCHEMA},
        {"user": "guided_json", "metadata": REGEX, "stop": ["format"]},
    )),
    *((CHAT, {"response_format": one}) for one in (None, FORMAT, {"type": "text"}, {"type": "json_object"})),
    (CHAT, response_format(json_schema={**NAMED, "strict": True, "description": None})),
    (CHAT, response_format(type="structural_tag", format={"type": "any_text"})),
    (CHAT, response_format(type="structural_tag", structures=[], triggers=[])),
    (CHAT, {"structured_outputs": {"regex": "a", "json": None, "whitespace_pattern": None}}),
    (RESPONSES, {"structured_outputs": {"json": {}}}),
    (CHAT, {**tools({**TOOL, "regex": 1}, choice="auto"), "vllm_xargs": CARD}),
    *((route, {"tool_choice": "required"}) for route in (CHAT, RESPONSES, MESSAGES)),
    (COMPLETIONS, {"tools": [], "tool_choice": "auto", "guided_decoding_backend": "auto"}),
    (MESSAGES, {"response_format": {"type": "text"}, "output_config": {"effort": "low"}}),
    (RESPONSES, text_format(**NAMED, strict=True)),
    (MESSAGES, {"output_config": {"format": {"schema": SCHEMA}}}),
    (GENERATE, {"sampling_params": {"structured_outputs": {"json": {}, "_backend": None}, "n": 1}}),
    ("/v1/audio/transcriptions", {"response_format": "json"}),
    *((route, tools(make(), make("g"))) for route, make in OF_ROUTE.items()),
    (CHAT, tools(function(description=None, strict=True), choice="required")),
    # As transformers' get_json_schema writes what a function returns.
    (CHAT, tools(function("é-1.x", **{"parameters": None, "return": {"type": "number"}}))),
    (RESPONSES, tools({"type": "web_search", "filters": {}}, choice="auto")),
    (MESSAGES, tools(anthropic(type="custom", cache_control={"type": "ephemeral"}))),
    (CHAT, {"tools": None, "tool_choice": None}),
    (CHAT, {"vllm_xargs": {**CARD, "guided_backend": "guidance"}}),
    (CHAT, {"vllm_xargs": {"regex": "a processor's own", "pattern": "x", "bias": 2}}),
    (GENERATE, {"sampling_params": {"extra_args": CARD}}),
    (COMPLETIONS, tools({**TOOL, "strict": False}, {**TOOL, "strict": None})),
]  # fmt: skip


@pytest.mark.parametrize(("route", "body"), RIGHT)
def test_what_asks_for_nothing_or_rightly_passes(route: str, body: dict[str, Any]) -> None:
    assert found(route, body) is None


@pytest.mark.parametrize(
    ("route", "asked", "harmless"),
    [
        (COMPLETIONS, {"response_format": {"type": "json_object"}}, {"response_format": None}),
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}, {"text": None}),
        *(
            (CHAT, tools(TOOL, choice=choice), {"tool_choice": other})
            for choice in ("required", {"type": "function", "function": {"name": "f"}})
            for other in ("auto", "none", None)
        ),
        (RESPONSES, tools(flat(), choice="required"), {"tool_choice": "auto"}),
    ],
)
def test_only_one_constraint_is_possible(route: str, asked: dict[str, Any], harmless: dict[str, Any]) -> None:
    """Of a forced call and a constraint vLLM drops the constraint, with a line in its log."""
    body = {**asked, "structured_outputs": REGEX}
    refusal = fault(route, body)
    assert refusal.path == "structured_outputs"
    assert "only one constraint is possible" in refusal.message
    assert found(route, {**body, **harmless}) is None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("structured_outputs", {"structured_outputs": {"json": {"description": "x" * 3 * MOST}}}),
        ("response_format", {"response_format": {"type": "json_object", "x": "x" * 3 * MOST}}),
        ("tools", tools(*[TOOL] * MOST, choice="required")),
        ("tools", tools(*[TOOL] * MOST, STRICT)),
        ("", tools(*[TOOL] * MOST)),  # they become no grammar
        ("", tools(*[TOOL] * MOST, choice="auto")),
    ],
)
def test_what_is_too_large_is_refused_before_anybody_reads_it(path: str, body: dict[str, Any]) -> None:
    """30,000 tools held up all other requests for 7 s, and were refused then."""
    if not path:
        assert found(CHAT, body, MOST) is None
        return
    refusal = fault(CHAT, body, MOST)
    assert (refusal.path, refusal.code) == (path, ErrorCode.GRAMMAR_TOO_LARGE)
    assert found(CHAT, body, 1 << 20) != refusal


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
    assert fault(CHAT, {**many, "guided_json": {}}).path == "guided_json"
