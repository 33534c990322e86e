"""Where the client wrote what an error is about, in his own words."""

import json
from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import client_paths, error_responses, headers, request_body
from guided_engine.admission.exchange import HttpExchange

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"name": "x", "schema": SCHEMA}
FORMAT = {"type": "json_schema", "json_schema": NAMED}


def read(body: dict[str, Any]) -> dict[str, Any]:
    given = request_body.read(json.dumps(body).encode())
    assert given is not None
    return given


PARAMETERS = {"type": "object", "properties": {"a b": {"type": "strng"}, "c": {"$ref": "#/$defs/d"}}}
OTHER = {"type": "object", "properties": {"other": {"type": "integer"}}}
TAG = {"format": {"tags": [{"content": {"type": "any_text"}}, {"content": {"json_schema": PARAMETERS}}]}}
IN_TAG = "$.format.tags[1].content.json_schema"


def told(kind: Any, spec: Any, path: str, body: dict[str, Any], route: str = CHAT) -> dict[str, Any]:
    """Return the error's body that a client gets for a fault at a path of a grammar."""
    exchange = HttpExchange(headers.begin([], 1), route)
    exchange.kind, exchange.spec = kind, spec if isinstance(spec, str) else json.dumps(spec)
    exchange.written = client_paths.written(read(body))
    error = GuidedError(ErrorCode.GRAMMAR_INVALID, f"{path}: no\n{path}: neither", path=path)
    return dict(json.loads(error_responses.response(error, exchange)[1]["body"])["error"])


def function(parameters: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, **fields}}


UNTYPED = {"properties": PARAMETERS["properties"], "$defs": {"d": {}}}


IN_TOOLS = "tools[1].function.parameters.properties['a b'].type"
AS_TEXT = {"structured_outputs": {"json": json.dumps(SCHEMA)}}


@pytest.mark.parametrize(
    ("kind", "spec", "path", "body", "expected"),
    [
        ("structural_tag", TAG, f"{IN_TAG}.properties['a b'].type", [OTHER, PARAMETERS], IN_TOOLS),
        # vLLM gives it a type.
        ("structural_tag", TAG, IN_TAG, {"tools": [{"input_schema": UNTYPED}]}, "tools[0].input_schema"),
        ("json", SCHEMA, "$", AS_TEXT, "structured_outputs.json"),
        ("regex", "(", "$", {"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ("json", {"named": 1}, "$.a", {"vllm_xargs": {}}, "$.a"),
    ],
)
def test_a_fault_is_told_where_the_client_wrote_it(
    kind: Any, spec: Any, path: str, body: Any, expected: str
) -> None:
    body = {"tools": [function(one) for one in body]} if isinstance(body, list) else body
    error = told(kind, spec, path, body, MESSAGES if "input_schema" in expected else CHAT)
    assert error["param"] == expected
    assert error["message"] == f"{expected}: no\n{expected}: neither"


@pytest.mark.parametrize(
    ("body", "path", "param"),
    [
        ({"structured_outputs": {"regex": "("}}, None, "structured_outputs.regex"),
        ({"structured_outputs": {"grammar": "x"}}, "$", "structured_outputs.grammar"),
        ({"response_format": FORMAT, "tools": [function(SCHEMA)]}, None, None),
        ({"tools": [function(SCHEMA, strict=True)]}, None, "tools"),
    ],
)
def test_an_error_that_knows_no_place_has_that_of_the_only_constraint(
    body: dict[str, Any], path: str | None, param: str | None
) -> None:
    exchange = HttpExchange(headers.begin([], 1), CHAT, written=client_paths.written(read(body)))
    for code in (ErrorCode.GRAMMAR_INVALID, ErrorCode.GRAMMAR_TOO_LARGE):
        told = client_paths.translated(GuidedError(code, "$: no" if path else "no", path=path), exchange)
        assert told.path == param
        assert told.message == (f"{param}: no" if path else "no")
    for other in (ErrorCode.GRAMMAR_RANKS_NOT_READY, ErrorCode.REQUEST_NOT_ADMITTED):
        assert client_paths.translated(GuidedError(other, "no"), exchange).path is None
