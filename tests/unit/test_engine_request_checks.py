"""What is looked at in a body besides words: types, tools, and that there is one constraint."""

import json
from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import client_paths, request_checks, request_tools, trace
from guided_engine.admission.exchange import HttpExchange
from guided_engine.admission.request_body import keys_of
from guided_engine.admission.request_fault import Fault

CHAT, COMPLETIONS, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/batch"
RESPONSES, MESSAGES, GENERATE = "/v1/responses", "/v1/messages", "/inference/v1/generate"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


def found(route: str, body: Any) -> Fault | None:
    keys = keys_of(json.dumps(body).encode())
    assert keys is not None
    return request_checks.fault(route, keys, 1 << 18)


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
            (RESPONSES, "text"),
            (MESSAGES, "output_config"),
            (GENERATE, "sampling_params"),
        ],
    )
    def test_a_constraint_is_an_object(self, route: str, path: str, value: Any) -> None:
        """vLLM's own check of some of these ends with an error that breaks the connection."""
        fault = found(route, {path: value})
        assert fault is not None
        assert fault.path == path
        assert "it is no object" in fault.message

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
    @pytest.mark.parametrize(
        "key", ["schema", "paramters", "inputSchema", "parameters_json_schema", "format"]
    )
    def test_a_schema_under_another_name(self, route: str, key: str) -> None:
        right = "input_schema" if route == MESSAGES else "parameters"
        fault = found(route, {"tools": [TOOLS[route](**{right: None, key: SCHEMA})]})
        assert fault is not None
        assert fault.path == ("tools[0].function." if route == CHAT else "tools[0].") + key
        assert f"as {right}" in fault.message

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
        schema = "input_schema" if route == MESSAGES else "parameters"
        no_object = {"tools": [make("g"), make(**{schema: {"type": "array"}})]}
        fault = found(route, {**no_object, **forced})
        assert fault is not None
        assert fault.path == f"{at}.{schema}.type"
        assert found(route, twice) is found(route, no_object) is None

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
    ("body", "path", "param"),
    [
        ({"structured_outputs": {"regex": "("}}, None, "structured_outputs.regex"),
        ({"structured_outputs": {"grammar": "x"}}, "$", "structured_outputs.grammar"),
        ({"response_format": FORMAT}, None, "response_format.json_schema.schema"),
        ({"response_format": FORMAT, "tools": [function()]}, None, None),
        ({"tools": [function(strict=True)]}, None, "tools"),
        ({"tools": [function()], "tool_choice": "required", "response_format": FORMAT}, None, "tools"),
        ({"tools": [function()], "vllm_xargs": {"guided_grammar": "x"}}, None, None),
        ({}, None, None),
    ],
)
def test_an_error_that_knows_no_place_has_that_of_the_only_constraint(
    body: dict[str, Any], path: str | None, param: str | None
) -> None:
    keys = keys_of(json.dumps(body).encode())
    assert keys is not None
    exchange = HttpExchange(trace.begin([], 1), "POST", CHAT, place=request_tools.place(CHAT, keys))
    for code in (ErrorCode.GRAMMAR_INVALID, ErrorCode.GRAMMAR_TOO_LARGE):
        told = client_paths.translated(GuidedError(code, "$: no" if path else "no", path=path), exchange)
        assert told.path == param
        assert told.message == (f"{param}: no" if path else "no")
    for other in (ErrorCode.GRAMMAR_RANKS_NOT_READY, ErrorCode.REQUEST_NOT_ADMITTED):
        assert client_paths.translated(GuidedError(other, "no"), exchange).path is None


@pytest.mark.parametrize("options", [5, True, "a", [], None, {}])
def test_options_of_a_wrong_type_are_no_place(options: Any) -> None:
    keys = keys_of(json.dumps({"vllm_xargs": options, "response_format": FORMAT}).encode())
    assert keys is not None
    assert request_tools.place(CHAT, keys) == "response_format.json_schema.schema"


@pytest.mark.parametrize(
    "body",
    [
        {"functions": []}, {"constraints": {}}, {"json_schema": []}, {"tool_choise": None},
        {"analytics": {"tool_choices": ["search"]}},
    ],
)  # fmt: skip
def test_what_asks_for_nothing_passes(body: Any) -> None:
    assert found(CHAT, body) is None
