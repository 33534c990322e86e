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
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


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
FORCED = {CHAT: "required", RESPONSES: "required", MESSAGES: {"type": "any"}}


class TestTypes:
    @pytest.mark.parametrize("value", ["json", "", [], [1], 0, 5, True, False])
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
            (CHAT, {"response_format": FORMAT, "structured_outputs": {"json": SCHEMA}}),
            (COMPLETIONS, {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}),
            (
                RESPONSES,
                {
                    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
                    "structured_outputs": {"regex": "a"},
                },
            ),
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
    @pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "", None, 5])
    def test_a_name_is_written_into_the_grammar_as_it_is(self, route: str, name: Any) -> None:
        fault = found(route, {"tools": [TOOLS[route]("f"), TOOLS[route](name)]})
        assert fault is not None
        assert fault.path == ("tools[1].function.name" if route == CHAT else "tools[1].name")

    @pytest.mark.parametrize("route", TOOLS)
    def test_what_clients_write_beside_a_schema_is_theirs(self, route: str) -> None:
        """As transformers' get_json_schema writes what a function returns."""
        more = {"return": {"type": "number"}, "metadata": {"a": 1}, "output_schema": SCHEMA, "schema": SCHEMA}
        assert found(route, {"tools": [TOOLS[route](**more)]}) is None

    @pytest.mark.parametrize(
        ("route", "tool", "path"),
        [
            (CHAT, {**function(), "strict": True}, "tools[0].strict"),
            (CHAT, {**function(), "parameters": SCHEMA}, "tools[0].parameters"),
            (CHAT, flat(), "tools[0].parameters"),
            (CHAT, {"type": 5}, "tools[0].function"),
            (CHAT, function(Strict=True), "tools[0].function.Strict"),
            (RESPONSES, flat(srict=True), "tools[0].srict"),
            (MESSAGES, anthropic("", type="web_search_20250305"), "tools[0].name"),
        ],
    )
    def test_a_tool_of_another_form(self, route: str, tool: Any, path: str) -> None:
        fault = found(route, {"tools": [tool]})
        assert fault is not None
        assert fault.path == path

    @pytest.mark.parametrize("route", TOOLS)
    def test_what_a_forced_call_cannot_be_made_of(self, route: str) -> None:
        make, forced = TOOLS[route], {"tool_choice": FORCED[route]}
        at = "tools[1].function" if route == CHAT else "tools[1]"
        twice = {"tools": [make(), make()]}
        fault = found(route, {**twice, **forced})
        assert fault is not None
        assert fault.path == f"{at}.name"
        assert found(route, twice) is None

    @pytest.mark.parametrize("constraint", [{"regex": "("}, {"json": SCHEMA}, {"choice": ["a"]}])
    @pytest.mark.parametrize(
        ("route", "choice"),
        [
            (CHAT, "required"),
            (CHAT, {"type": "function", "function": {"name": "f"}}),
            (RESPONSES, "required"),
            (RESPONSES, {"type": "function", "name": "f"}),
        ],
    )
    def test_a_forced_call_and_a_constraint(self, route: str, choice: Any, constraint: Any) -> None:
        """vLLM drops the constraint, with a line in its log."""
        body = {"tools": [TOOLS[route]()], "structured_outputs": constraint}
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
            (CHAT, {"tools": [{**function(), "strict": None, "cache_control": {"type": "x"}}]}),
            (CHAT, {"tools": [function("é-1.x", parameters=None)]}),
            (RESPONSES, {"tools": [{"type": "web_search", "filters": {}}], "tool_choice": "auto"}),
            (
                RESPONSES,
                {"tools": [{"type": "web_search"}], "tool_choice": {"type": "function", "name": "x"}},
            ),
            (MESSAGES, {"tools": [anthropic(type="custom", cache_control={"type": "ephemeral"})]}),
            (MESSAGES, {"tools": [anthropic()], "tool_choice": {"type": "tool", "name": "f"}}),
            (CHAT, {"tools": [function()], "tool_choice": "required", "response_format": FORMAT}),
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
        ("tools", {"tools": [TOOL] * MOST, "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ],
)
def test_what_is_too_large_is_refused_before_anybody_reads_it(path: str, body: Any) -> None:
    """30,000 tools held up all other requests for 7 s, and were refused then."""
    fault = found(CHAT, body, MOST)
    assert fault is not None
    assert (fault.path, fault.code) == (path, ErrorCode.GRAMMAR_TOO_LARGE)
    assert found(CHAT, body, most_bytes=1 << 20) != fault


def test_a_long_key_is_cut_in_its_error() -> None:
    fault = found(CHAT, {"guided_" + "x" * 3_000_000: 1})
    assert fault is not None
    assert len(fault.message) < 2000 > len(fault.path or "")


@pytest.mark.parametrize("strict", [True, "true", 1])
def test_strict_is_what_vllm_takes_for_true(strict: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": strict}}
    free = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    for tools in ([tool, free], [free, tool]):  # both would be one grammar's alternatives
        fault = found(CHAT, {"tools": tools})
        assert fault is not None
        assert fault.path == "tools[1].function.name"


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_tools_that_become_no_grammar_may_be_large(choice: Any) -> None:
    assert found(CHAT, {"tools": [TOOL] * MOST, "tool_choice": choice}, MOST) is None


@pytest.mark.parametrize(
    ("route", "path", "body"),
    [
        (
            GENERATE,
            "sampling_params.extra_args.response_format",
            {"sampling_params": {"extra_args": {"response_format": SCHEMA}}},
        ),
        (CHAT, "vllm_xargs.structured_outputs", {"vllm_xargs": {"structured_outputs": "x"}}),
        (CHAT, "vllm_xargs.response_format", {"vllm_xargs": {"response_format": "json"}}),
        (CHAT, "vllm_xargs.Guided_Grammar", {"vllm_xargs": {"Guided_Grammar": "x"}}),
        (COMPLETIONS, "tools", {"tools": [STRICT]}),
        (GENERATE, "tools", {"tools": [STRICT]}),
        ("/invocations", "tools", {"prompt": "x", "tools": [STRICT]}),
        (BATCH, "tools", {"tools": [STRICT]}),
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
        (COMPLETIONS, {"tools": [TOOL]}),
        (COMPLETIONS, {"tools": [{**TOOL, "strict": False}, {**TOOL, "strict": None}]}),
    ],
)
def test_what_is_read_or_asks_for_nothing_goes_on(route: str, body: Any) -> None:
    assert found(route, body) is None
