"""Objects whose schema is silent on further properties are closed, where that contradicts nothing."""

import json
from typing import Any

import pytest

from guided_grammar.json_schema import subschemas
from guided_sidecar.grammar.schema import additional_properties


@pytest.mark.parametrize(
    ("schema", "silent"),
    [
        ({"type": "object", "properties": {"a": {}}}, ["$"]),
        ({"properties": {}}, ["$"]),
        ({"properties": {"a": {"properties": {"b": {}}, "required": ["b"]}}}, ["$", "$.properties.a"]),
        ({"anyOf": [{"properties": {}}, {"items": {"properties": {}}}]}, ["$.anyOf[0]", "$.anyOf[1].items"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"$ref": "#"}}}}}, ["$.$defs.a"]),
        ({"properties": {}, "additionalProperties": True}, []),
        ({"properties": {}, "patternProperties": {"^a": {}}}, []),
        ({"properties": {"a": {}}, "required": ["a", "b"]}, []),
        ({"properties": {"a": {}}, "minProperties": 2}, []),
        ({"properties": {"a": {}}, "anyOf": [{"required": ["b"]}, {}]}, []),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, []),
        ({"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, []),
        ({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}}]}, []),
        ({"required": ["a"], "anyOf": [{"properties": {"b": {}}}]}, []),
        ({"properties": {"a": {}}, "$ref": "#/$defs/b", "$defs": {"b": {"properties": {"b": {}}}}}, []),
        ({"type": "object"}, []),
        ({"type": "string", "properties": {}}, []),
        (True, []),
    ],
)
def test_objects_that_are_silent_on_further_properties_are_closed(schema: Any, silent: list[str]) -> None:
    before = json.dumps(schema)
    closed_schema = additional_properties.close(schema)
    assert json.dumps(schema) == before

    added = [
        place.path
        for place, old in zip(subschemas.walk(closed_schema), subschemas.walk(schema), strict=True)
        if place.schema.get("additionalProperties") != old.schema.get("additionalProperties")
    ]
    assert sorted(added) == silent
