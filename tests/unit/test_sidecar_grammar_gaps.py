"""What a library takes and does not enforce, and whom `Auto` asks first."""

from typing import Any

import pytest

from guided_sidecar.grammar import features, gaps, measured


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ({"not": {}}, "$.not"),
        ({"properties": {"a": {"uniqueItems": True}}}, "$.properties.a.uniqueItems"),
        ({"items": {"multipleOf": 2}}, "$.items.multipleOf"),
        ({"anyOf": [{}, {"contains": {}}]}, "$.anyOf[1].contains"),
        ({"allOf": [{}, {}]}, "$.allOf"),
        ({"type": "string", "format": "color"}, "$.format"),
        ({"type": "string", "pattern": "a", "maxLength": 3}, "$.pattern"),
        ({"type": "string", "pattern": "a{3,200}"}, "$.pattern"),
        ({"$ref": "#/$defs/a", "required": ["b"], "$defs": {"a": {}}}, "$.$ref"),
        ({"const": 5, "type": "string"}, "$.const"),
        ({"type": "integer", "enum": [1, 20], "minimum": 2}, "$.enum"),
        ({"anyOf": [{"required": ["a"]}, {}], "type": "object"}, "$.anyOf"),
        ({"allOf": [{"type": "object"}], "properties": {"a": {}}}, "$.allOf"),
        ({"oneOf": [{"type": "string"}, {"type": "string", "format": "date"}]}, "$.oneOf"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "$.oneOf"),
        ({"oneOf": [{"const": 1}, {"enum": [1.0, 2]}]}, "$.oneOf"),
        ({"minimum": 3}, "$.minimum"),
        ({"pattern": "^a$"}, "$.pattern"),
        ({"type": "object", "properties": {"a": {}}, "required": ["a", "z"]}, "$.required"),
        ({"type": "string", "format": "date", "pattern": "^2"}, "$.format"),
        ({"type": "string", "format": "ipv4"}, "$.format"),
        ({"type": "string", "pattern": '^"$'}, "$.pattern"),
        ({"type": "string", "pattern": r"^a\\b$"}, "$.pattern"),
        ({"type": "string", "pattern": r"^a\n$"}, "$.pattern"),
        ({"$defs": {"a": {"dependentRequired": {}}}}, "$.$defs.a.dependentRequired"),
        ({"propertyNames": {"pattern": "a"}, "properties": {}}, "$.propertyNames"),
        ({"patternProperties": {"a": {}, "b": {}}}, "$.patternProperties"),
        ({"maxItems": 2}, "$.maxItems"),
        ({"properties": {"a": {"minProperties": 2}}}, "$.properties.a.minProperties"),
        ({"$ref": "#anchor"}, "$.$ref"),
        ({"$dynamicRef": "#/$defs/a", "$defs": {"a": {}}}, "$.$dynamicRef"),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$id": "a"}}}, "$.$defs.a.$id"),
        ({"allOf": [{}], "unevaluatedItems": False}, "$.allOf"),
        ({"type": "object", "properties": {"é": {}}, "additionalProperties": True}, "$.properties"),
        ({"type": "string", "pattern": r"^\S+$"}, "$.pattern"),
    ],
)
def test_a_keyword_that_xgrammar_ignores_is_found(text: Any, path: str) -> None:
    found = gaps.xgrammar_ignores(text)

    assert found is not None
    assert found.path == path
    assert features.order("json", text) == ["guidance"]


@pytest.mark.parametrize(
    "text",
    [
        {"properties": {"not": {"type": "string"}, "if": {"type": "null"}}},
        {"enum": [{"not": 1}, {"if": 1}]},
        {"const": {"if": 1}},
        {"type": "string", "uniqueItems": True},
        {"uniqueItems": False},
        {"allOf": [{}]},
        {"type": "string", "pattern": "a{3,128}\\{200}"},
        {"type": "string", "format": "date"},
        {"type": "string", "enum": ["a", "b"], "description": "one of two"},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "title": "optional"},
        {"type": "object", "anyOf": [{"type": "object", "properties": {}}]},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {}}},
        {"oneOf": [{"type": "string"}, {"type": "integer"}, {"enum": [None, True]}]},
        {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]}
                for name in ("cat", "dog")
            ]
        },
        {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]},
        {"type": "string", "pattern": r"^[^\-@]+\.\d$"},
        {"type": "object", "patternProperties": {"a": {}}},
        {"type": "object", "properties": {"é": {}}, "additionalProperties": False},
        True,
    ],
)
def test_what_xgrammar_enforces_goes_to_it_first(text: Any) -> None:
    assert gaps.xgrammar_ignores(text) is None
    assert features.order("json", text) == ["xgrammar", "guidance"]


@pytest.mark.parametrize(
    ("bounds", "keyword"),
    [
        ({"exclusiveMinimum": 0, "maximum": 0.5}, "exclusiveMinimum"),
        ({"exclusiveMinimum": 2.0, "exclusiveMaximum": 2.25}, "exclusiveMinimum"),
        ({"exclusiveMaximum": 0, "minimum": -0.05}, "exclusiveMaximum"),
        ({"exclusiveMaximum": -1, "minimum": -1.5}, "exclusiveMaximum"),
        ({"exclusiveMinimum": 0, "maximum": 5}, None),
        ({"exclusiveMinimum": 0.5, "maximum": 0.75}, None),
        ({"exclusiveMaximum": 1, "minimum": 0.5}, None),
        ({"exclusiveMinimum": -1, "maximum": -0.5}, None),
        ({"exclusiveMinimum": True, "minimum": 0, "maximum": 0.5}, None),
    ],
)
def test_a_bound_that_llguidance_takes_for_inclusive_is_found(
    bounds: dict[str, Any], keyword: str | None
) -> None:
    """As drawn bounds in both libraries' hands showed: where both have the same whole part."""
    found = gaps.ignores("guidance", {"items": {"type": "number", **bounds}})

    assert (found.path if found else None) == (keyword and f"$.items.{keyword}")
    assert gaps.ignores("guidance", {"type": "integer", **bounds}) is None


def test_every_keyword_that_a_library_was_seen_to_ignore_has_a_rule() -> None:
    """measured.py is written by `make schema-table`; another version of a library may ignore others."""
    values: dict[str | None, Any] = {"array": [], "number": 0, "object": {}, "string": "", None: {}}
    for backend, keywords in measured.KEYWORDS.items():
        for keyword, seen in keywords.items():
            if seen.untyped == "ignored":
                schema = {keyword: values[measured.TYPES.get(keyword)], "properties": {}, "then": {}}
                assert gaps.ignores(backend, schema) is not None, f"{backend}, {keyword}"
