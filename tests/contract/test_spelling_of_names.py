"""A property's name is one name however it is spelt, and names come in order, as jsonschema reads them."""

import itertools
import json
from typing import Any

import jsonschema
import pytest

from guided_contract.errors import GuidedError
from support.compositions.libraries import LIBRARIES, Compilers

INT = {"type": "integer"}
OBJECT = {"type": "object"}
OPEN = {**OBJECT, "additionalProperties": True}
# The name d is an integer's in each, by itself or in some branch.
SCHEMAS: dict[str, dict[str, Any]] = {
    "open": {**OPEN, "properties": {"d": INT}},
    "others are texts": {**OBJECT, "properties": {"d": INT}, "additionalProperties": {"type": "string"}},
    "escapes in a name": {**OPEN, "properties": {"d": INT, 'd"': INT, "d\\": INT, "d\n": INT}},
    "letters in a name": {**OPEN, "properties": {"d": INT, "é": INT, "日本": INT, "\x7f": INT}},
    "below": {**OBJECT, "properties": {"x": {**OPEN, "properties": {"d": INT}}}},
    "required alone": {**OBJECT, "required": ["d"], "additionalProperties": INT},
    "pattern": {**OPEN, "patternProperties": {"^d": INT}},
    "beginnings": {**OPEN, "properties": {"e": {}}, "patternProperties": {"^d": INT}},
    "pattern beside an open branch": {"anyOf": [OPEN, {"type": "string"}], "patternProperties": {"^d$": INT}},
    "names beside an open branch": {
        **OBJECT,
        "properties": {"d": INT},
        "anyOf": [{"additionalProperties": True}, {"required": ["d"]}],
    },
    "allOf, names": {"allOf": [OPEN, {**OBJECT, "properties": {"d": INT}}]},
    "allOf, a pattern": {"allOf": [OPEN, {**OBJECT, "patternProperties": {"^d$": INT}}]},
    "allOf, two open ones": {
        "allOf": [{**OPEN, "properties": {"d": INT}}, {**OPEN, "properties": {"e": INT}}]
    },
    "allOf, a pattern and names": {
        "allOf": [
            {**OPEN, "properties": {"d": INT, "e": INT}},
            {**OPEN, "patternProperties": {"^x-[a-z]+$": INT}},
        ]
    },
    "reference, names": {"$ref": "#/$defs/o", "properties": {"d": INT}, "$defs": {"o": OPEN}},
    "reference, a pattern": {"$ref": "#/$defs/o", "patternProperties": {"^d$": INT}, "$defs": {"o": OPEN}},
    "reference, alone and beside": {
        "properties": {
            "x": {"$ref": "#/$defs/o"},
            "y": {"allOf": [{"$ref": "#/$defs/o"}, {**OBJECT, "properties": {"e": INT}}]},
        },
        "$defs": {"o": {**OPEN, "properties": {"d": INT}}},
    },
    "branches": {
        "anyOf": [
            {**OPEN, "properties": {"d": INT}, "required": ["d"]},
            {**OPEN, "properties": {"d": {"type": "null"}}, "required": ["d"]},
        ]
    },
    "names of a length": {**OPEN, "properties": {"d": INT}, "propertyNames": {"maxLength": 3}},
}
NAMES = ["d", "\\u0064", "e", "\\u0065", "q", "x-a", "x\\u002da"]
NAMES += ["é", "\\u00e9", "è", "日本", "日\\u672c", "日", "\x7f", "\\u007f"]
NAMES += ['d"', 'd\\"', "d\\u0022", "d\\\\", "d\\u005c", "d\n", "d\\n", "d\\u000a"]
VALUES = ["1", '"x"', "null", '{"d": "x"}', '{"\\u0064": "x"}']


def _texts() -> list[str]:
    members = [f'"{name}": {value}' for name, value in itertools.product(NAMES, VALUES)]
    pairs = [f'"d": 1, {one}' for one in members]
    objects = [f"{{{one}}}" for one in [*members, *pairs]]
    return [*objects, *(f'{{"{name}": {one}}}' for name, one in itertools.product("xy", objects))]


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_no_name_is_another_for_being_spelt_otherwise(compilers: Compilers, library: Any, name: str) -> None:
    schema = SCHEMAS[name]
    if library == "xgrammar":
        with pytest.raises(GuidedError, match="grammar_unsupported"):
            compilers.compiled(schema, library)
        return
    grammar = compilers.compiled(schema, library)
    validator = jsonschema.Draft202012Validator(schema)

    def is_valid(text: str) -> bool:
        try:
            return bool(validator.is_valid(json.loads(text)))
        except ValueError:
            return False

    taken = [text for text in _texts() if grammar.accepts(text)]
    assert [text for text in taken if not is_valid(text)] == []
    assert taken


AB = {"type": "object", "properties": {"a": INT, "b": INT}}
AB_OPEN = {**AB, "additionalProperties": True}
CLOSED: list[dict[str, Any]] = [{**AB, "additionalProperties": False, "required": ["b"]}]
BY_GUIDANCE: list[dict[str, Any]] = [
    {**AB_OPEN, "required": ["b"]},
    {"required": ["b", "a"], **AB_OPEN},
    {**AB, "additionalProperties": INT, "required": ["b"]},
    {**AB_OPEN, "required": ["b"], "minProperties": 1},
    {**AB_OPEN, "required": ["z", "b"]},
    {"required": ["b"], "additionalProperties": True, "allOf": [AB_OPEN]},
]
TRIED = [*itertools.product(CLOSED, LIBRARIES), *((schema, "guidance") for schema in BY_GUIDANCE)]


@pytest.mark.parametrize(("schema", "library"), TRIED, ids=lambda one: json.dumps(one)[:90])
def test_names_come_in_the_schemas_order(compilers: Compilers, schema: Any, library: Any) -> None:
    """Where others may come, llguidance was given those that are required first."""
    within = {"type": "object", "properties": {"n": schema}}
    alone, inside = compilers.compiled(schema, library), compilers.compiled(within, library)
    judge = jsonschema.Draft202012Validator(schema)
    for order in (order for count in (1, 2, 3) for order in itertools.permutations("abz", count)):
        value = dict.fromkeys(order, 1)
        is_meant = judge.is_valid(value) and list(order) == sorted(order)
        assert alone.accepts(json.dumps(value)) == is_meant, value
        assert inside.accepts(json.dumps({"n": value})) == is_meant, value
