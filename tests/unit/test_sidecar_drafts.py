"""Which schemas a rank may compile before a worker has."""

import json
from typing import Any

import pytest

from guided_sidecar.grammar.compile import drafts
from guided_sidecar.grammar.schema import formats

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
    "schema",
    [
        True,
        {},
        PLAIN,
        {"properties": {"pattern": {"type": "string"}}},
        {"definitions": {"a": {"type": "integer", "minimum": 3, "exclusiveMaximum": 1e9}}},
        {"type": "array", "prefixItems": [{"type": "string", "format": "uuid"}]},
        {"pattern": formats.PATTERNS["date-time"]},
        {"pattern": r"^(?:[a-z\d]{1,64}-)*\{?[^\s]+$"},
    ],
    ids=str,
)
def test_plain_ones(schema: Any) -> None:
    assert drafts.is_plain(json.dumps(schema))


@pytest.mark.parametrize(
    "inner",
    [
        {"pattern": "(?:ab){2}"},
        {"pattern": "a{65}"},
        {"pattern": "a{2}{3}"},
        {"pattern": "a+{3}"},
        {"pattern": "a{1,1000}"},
        {"pattern": r"\pL"},
        {"pattern": "(?i)a"},
        {"pattern": "^a", "maxLength": 3},
        {"pattern": "^a", "format": "uuid"},
        {"format": "uuid", "minLength": 3},
        {"enum": ["a"], "format": "uri"},
        {"const": "a", "pattern": "^a"},
        {"anyOf": [{"pattern": "^a"}, {"type": "null"}], "pattern": "b"},
        {"$ref": "#/$defs/b", "pattern": "^a"},
        {"$ref": "#/$defs/b", "enum": ["a"], "$defs": {"b": {"format": "uri"}}},
        {"properties": {"a": {"pattern": "^a"}}, "anyOf": [{"properties": {"a": {"enum": ["a"]}}}]},
        {"$ref": "#/$defs/b", "type": "array"},
        {"type": "array", "anyOf": [{"$ref": "#/$defs/b"}]},
        {"enum": [1, 2], "properties": {"a": {}}},
        {"properties": {f"p{index}": {} for index in range(1200)}},
        {"required": [f"p{index}" for index in range(1200)]},
        {"items": {"prefixItems": [{"properties": {f"p{i}": {} for i in range(600)}} for _ in range(3)]}},
        {"enum": [[]] * 1501},
        {"const": [{"a": [[]]}] * 500},
        {"const": {f"p{index}": 0 for index in range(1200)}},
        {"prefixItems": [{"properties": {f"p{i}": {} for i in range(90)}}] * 30},
        {"anyOf": [{"format": "uri"}] * 200},
        {"anyOf": [{"minimum": index, "maximum": 1e9} for index in range(120)]},
        {"enum": [1e-300 * index for index in range(2500)]},
        {"pattern": f"[{''.join(map(chr, range(0x4E00, 0x4E00 + 6000, 2)))}]"},
        {"type": ["string", "string"], "format": "uri"},
        {"$ref": "#/properties/a"},
        {"$ref": "#/$defs/a/const"},
        {"properties": {"a": {"$defs": {"b": {}}}}},
        {"format": "regex"},
        {"maxLength": 65},
        {"minItems": 1000},
        {"maxItems": 1e3},
        {"patternProperties": {"^a": {}}},
        {"propertyNames": {"minLength": 1}},
        {"allOf": [{}]},
        {"oneOf": [{}]},
        {"not": {}},
        {"multipleOf": 3},
        {"x-guidance": {"lenient": True}},
        {"description": "a" * (64 << 10)},
    ],
    ids=lambda inner: str(inner)[:40],
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
