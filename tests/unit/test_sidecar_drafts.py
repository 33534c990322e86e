"""Which schemas a rank may compile before a worker has."""

import json
from typing import Any

import pytest

from guided_sidecar.grammar.compile import drafts

PLAIN = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 64}, "b": {"$ref": "#/$defs/b"}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {
        "b": {"type": "array", "items": {"anyOf": [{"enum": ["x", 1]}, {"const": None}]}, "maxItems": 3}
    },
}


@pytest.mark.parametrize(
    "schema", [True, {}, PLAIN, {"properties": {"pattern": {"type": "string"}}}], ids=str
)
def test_plain_ones(schema: Any) -> None:
    assert drafts.is_plain(json.dumps(schema))


@pytest.mark.parametrize(
    "inner",
    [
        {"pattern": "^a"},
        {"format": "uuid"},
        {"maxLength": 65},
        {"minItems": 1000},
        {"maxItems": 1e3},
        {"patternProperties": {"^a": {}}},
        {"propertyNames": {"minLength": 1}},
        {"allOf": [{}]},
        {"oneOf": [{}]},
        {"not": {}},
        {"multipleOf": 3},
        {"minimum": 3},
        {"prefixItems": [{}]},
        {"x-guidance": {"lenient": True}},
        {"description": "a" * (64 << 10)},
    ],
    ids=lambda inner: next(iter(inner)),
)
def test_others_wherever_they_stand(inner: dict[str, Any]) -> None:
    for schema in (
        inner,
        {"properties": {"a": inner}},
        {"items": {"anyOf": [{}, inner]}},
        {"additionalProperties": inner},
        {"$defs": {"a": inner}},
    ):
        assert not drafts.is_plain(json.dumps(schema))
