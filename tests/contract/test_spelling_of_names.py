"""A property's name is one name however it is spelt, with both libraries: jsonschema reads what they take."""

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
