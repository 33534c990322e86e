"""What is looked at in a body besides words: types, tools, and that there is one constraint."""

import json
from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import request_body, request_checks

CHAT, COMPLETIONS, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/batch"
RESPONSES, MESSAGES, GENERATE = "/v1/responses", "/v1/messages", "/inference/v1/generate"
MOST = 1000
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
STRICT = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}


def read(body: Any) -> dict[str, Any]:
    given = request_body.read(json.dumps(body).encode())
    assert given is not None
    return given


def found(route: str, body: Any, most_bytes: int = 1 << 18) -> GuidedError | None:
    try:
        request_checks.check(route, read(body), most_bytes)
    except GuidedError as error:
        return error
    return None


def function(name: Any = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **fields}}


def flat(name: Any = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": SCHEMA, **fields}


def anthropic(name: Any = "f", **fields: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": SCHEMA, **fields}


TOOLS: dict[str, Any] = {CHAT: function, RESPONSES: flat, MESSAGES: anthropic}


class TestTypes:
    @pytest.mark.parametrize("value", ["json", [], 0, True])
    @pytest.mark.parametrize(
        ("route", "path"),
        [
            *((route, "structured_outputs") for route in (CHAT, COMPLETIONS, BATCH, RESPONSES)),
            *((route, "response_format") for route in (CHAT, COMPLETIONS, BATCH)),
        ],
    )
    def test_a_constraint_is_an_object(self, route: str, path: str, value: Any) -> None:
        """vLLM's own check of some of these ends with an error that breaks the connection."""
        fault = found(route, {path: value})
        assert fault is not None
        assert fault.path == path
        assert "it is not an object" in fault.message

    @pytest.mark.parametrize(
        ("route", "body"),
        [
            (COMPLETIONS, {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}),
            (RESPONSES, {"text": {"format": {"type": "json_object"}}, "structured_outputs": {"regex": "a"}}),
        ],
    )
    def test_two_constraints(self, route: str, body: Any) -> None:
        fault = found(route, body)
        assert fault is not None
        assert fault.path == "structured_outputs"
        assert "only one constraint is possible" in fault.message
        assert found(route, {**body, "response_format": None, "text": None}) is None


class TestTools:
    @pytest.mark.parametrize("route", TOOLS)
    @pytest.mark.parametrize("name", ['a"b', "a\nb", "", 5])
    def test_a_name_is_written_into_the_grammar_as_it_is(self, route: str, name: Any) -> None:
        fault = found(route, {"tools": [TOOLS[route]("f"), TOOLS[route](name)]})
        assert fault is not None
        assert fault.path == ("tools[1].function.name" if route == CHAT else "tools[1].name")

    @pytest.mark.parametrize(
        ("route", "tool", "path"),
        [
            (CHAT, {**function(), "strict": True}, "tools[0].strict"),
            (CHAT, flat(), "tools[0].parameters"),
            (CHAT, function(Strict=True), "tools[0].function.Strict"),
            (RESPONSES, flat(srict=True), "tools[0].srict"),
            (MESSAGES, anthropic("", type="web_search_20250305"), "tools[0].name"),
        ],
    )
    def test_a_tool_of_another_form(self, route: str, tool: Any, path: str) -> None:
        fault = found(route, {"tools": [tool]})
        assert fault is not None
        assert fault.path == path

    @pytest.mark.parametrize(
        ("route", "choice"),
        [
            (CHAT, "required"),
            (CHAT, {"type": "function", "function": {"name": "f"}}),
            (RESPONSES, "required"),
        ],
    )
    def test_a_forced_call_and_a_constraint(self, route: str, choice: Any) -> None:
        """vLLM drops the constraint, with a line in its log."""
        body = {"tools": [TOOLS[route]()], "structured_outputs": {"regex": "("}}
        fault = found(route, {**body, "tool_choice": choice})
        assert fault is not None
        assert fault.path == "structured_outputs"
        assert "only one constraint is possible" in fault.message
        for other in ("auto", "none", None):
            assert found(route, {**body, "tool_choice": other}) is None

    @pytest.mark.parametrize(
        ("route", "body"),
        [
            *((route, {"tools": [make(), make("g")]}) for route, make in TOOLS.items()),
            (CHAT, {"tools": [function(description=None, strict=True)], "tool_choice": "required"}),
            # As transformers' get_json_schema writes what a function returns.
            (CHAT, {"tools": [function("é-1.x", **{"parameters": None, "return": {"type": "number"}})]}),
            (RESPONSES, {"tools": [{"type": "web_search", "filters": {}}], "tool_choice": "auto"}),
            (MESSAGES, {"tools": [anthropic(type="custom", cache_control={"type": "ephemeral"})]}),
            (CHAT, {"tools": None, "tool_choice": None}),
        ],
    )
    def test_what_is_right_passes(self, route: str, body: dict[str, Any]) -> None:
        assert found(route, body) is None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("structured_outputs", {"structured_outputs": {"json": {"description": "x" * 3 * MOST}}}),
        ("response_format", {"response_format": {"type": "json_object", "x": "x" * 3 * MOST}}),
        ("tools", {"tools": [TOOL] * MOST, "tool_choice": "required"}),
        ("tools", {"tools": [TOOL] * MOST + [STRICT]}),
    ],
)
def test_what_is_too_large_is_refused_before_anybody_reads_it(path: str, body: Any) -> None:
    """30,000 tools held up all other requests for 7 s, and were refused then."""
    fault = found(CHAT, body, MOST)
    assert fault is not None
    assert (fault.path, fault.code) == (path, ErrorCode.GRAMMAR_TOO_LARGE)
    assert found(CHAT, body, most_bytes=1 << 20) != fault


@pytest.mark.parametrize("strict", [True, "true", 1])
def test_strict_is_what_vllm_takes_for_true(strict: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": strict}}
    free = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    for tools in ([tool, free], [free, tool]):  # both would be one grammar's alternatives
        fault = found(CHAT, {"tools": tools})
        assert fault is not None
        assert fault.path == "tools[1].function.name"


@pytest.mark.parametrize("choice", [None, "auto"])
def test_tools_that_become_no_grammar_may_be_large(choice: Any) -> None:
    assert found(CHAT, {"tools": [TOOL] * MOST, "tool_choice": choice}, MOST) is None


@pytest.mark.parametrize(
    ("route", "path", "body"),
    [
        (CHAT, "vllm_xargs.structured_outputs", {"vllm_xargs": {"structured_outputs": "x"}}),
        (CHAT, "vllm_xargs.Guided_Grammar", {"vllm_xargs": {"Guided_Grammar": "x"}}),
        (COMPLETIONS, "tools", {"tools": [STRICT]}),
        ("/invocations", "tools", {"prompt": "x", "tools": [STRICT]}),
        (BATCH, "tool_choice", {"tools": [TOOL], "tool_choice": "required"}),
    ],
)
def test_a_constraint_that_nobody_reads_is_told(route: str, path: str, body: Any) -> None:
    fault = found(route, body)
    assert fault is not None
    assert fault.path == path


@pytest.mark.parametrize(
    ("route", "body"),
    [
        (CHAT, {"vllm_xargs": {"guided_grammar": "x", "guided_backend": "guidance"}}),
        (CHAT, {"vllm_xargs": {"regex": "a processor's own", "pattern": "x", "bias": 2}}),
        (GENERATE, {"sampling_params": {"extra_args": {"guided_grammar": "x"}}}),
        (COMPLETIONS, {"tools": [{**TOOL, "strict": False}, {**TOOL, "strict": None}]}),
    ],
)
def test_what_is_read_or_asks_for_nothing_goes_on(route: str, body: Any) -> None:
    assert found(route, body) is None
