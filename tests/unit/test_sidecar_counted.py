"""Which bounds are taken out of a schema to be counted, and which stay in the grammar."""

import json
from typing import Any

import pytest

from guided_grammar.bounds import BETWEEN, OUTSIDE, Bounds, Where
from guided_sidecar.grammar.compile import followed

S: dict[str, Any] = {"type": "string", "maxLength": 3}
L: dict[str, Any] = {"type": "string", "minLength": 2, "maxLength": 9}
T: dict[str, Any] = {"type": "string"}


def obj(closed: bool = True, **properties: Any) -> dict[str, Any]:  # noqa: FBT001, FBT002 - of a schema
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "additionalProperties": False} if closed else found


# name: schema, texts that a counter must let pass, texts that it must refuse
COUNTED: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "the whole text": (S, ["", "abc", "🙂🙂🙂"], ["abcd"]),
    "properties": (obj(a=S, b=L, c=T), [{"a": "x", "b": "1234", "c": "long"}], [{"a": "long"}, {"b": "x"}]),
    "other properties": ({"type": "object", "additionalProperties": S}, [{"a": "x"}], [{"a": "long"}]),
    "named and other properties": (
        {**obj(a=L), "additionalProperties": S},
        [{"a": "12345", "b": "123"}],
        [{"a": "12345", "b": "1234"}, {"a": "1"}],
    ),
    "items": ({"type": "array", "items": S}, [["", "abc"]], [["a", "abcd"]]),
    "first items that want the same": (
        {"type": "array", "prefixItems": [S, {"type": "integer"}], "items": S},
        [["abc", 1, "abc"]],
        [["abcd"], ["a", 1, "abcd"]],
    ),
    "nullable by anyOf": (obj(a={"anyOf": [S, {"type": "null"}]}), [{"a": None}], [{"a": "long"}]),
    "one branch alone has it": (
        {"anyOf": [obj(kind={"const": "a"}, a=S), obj(kind={"const": "b"}, b=L)]},
        [{"kind": "long", "b": "12"}],
        [{"a": "long"}, {"b": "1"}],
    ),
    "a reference": ({"$defs": {"S": S}, **obj(a={"$ref": "#/$defs/S"})}, [], [{"a": "long"}]),
    "recursion": (
        {"$defs": {"N": obj(t=S, next={"$ref": "#/$defs/N"})}, "$ref": "#/$defs/N"},
        [{"next": {"next": {"t": "abc"}}}],
        [{"next": {"next": {"t": "long"}}}],
    ),
    "a reference that names a property": (
        obj(a=S, **{"b/~": {"$ref": "#/properties/a"}}),
        [],
        [{"b/~": "long"}],
    ),
    "names that must be escaped": (obj(**{'"\\é': S}), [{'"\\é': "abc"}], [{'"\\é': "abcd"}]),
    "beside a value that looks like a reference": (
        obj(a=S, b={"enum": [{"$ref": "nowhere"}, {"$ref": "#/nowhere"}]}, c={"const": [{"$ref": 1}]}),
        [{"a": "abc"}],
        [{"a": "long"}],
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_the_path_decides_is_counted(name: str) -> None:
    before, allowed, refused = COUNTED[name]
    schema = _parsed(before)

    relaxed, positions = followed.split(schema, "xgrammar")

    assert schema == before
    assert "Length" not in json.dumps(relaxed).replace(json.dumps({**S, "pattern": "^x"}), "")
    bounds = Bounds(positions)
    for value in allowed:
        after = bounds.advance(Where(), json.dumps(value, ensure_ascii=False).encode())
        assert after is not None, value
        assert after.mode in {OUTSIDE, BETWEEN}  # what could be longer, or is whole
    for value in refused:
        assert bounds.advance(Where(), json.dumps(value, ensure_ascii=False).encode()) is None, value


COMPILED: dict[str, Any] = {
    "a pattern": {**S, "pattern": "^a"},
    "an enum": {**S, "enum": ["a", "b"]},
    "more than can be": {"type": "string", "minLength": 4, "maxLength": 3},
    "branches that differ": {"anyOf": [S, L]},
    "a branch that takes anything": {"anyOf": [S, {"minimum": 3}]},
    "first items that differ": {"type": "array", "prefixItems": [S, T], "items": False},
    "beside a reference": {"$defs": {"S": T}, "$ref": "#/$defs/S", "maxLength": 3},
    "beside branches": {**S, "anyOf": [{"minLength": 2}, {"pattern": "a"}]},
    "shared with a branch that differs": {
        "$defs": {"S": S},
        **obj(a={"$ref": "#/$defs/S"}, b={"anyOf": [{"$ref": "#/$defs/S"}, T]}),
    },
    "a name that libraries may write in two ways": obj(**{"\x7f": S}),
    "a pattern beside a property": {**obj(a=S), "patternProperties": {"a": T}},
}


@pytest.mark.parametrize("name", COMPILED)
def test_what_it_does_not_decide_stays_in_the_grammar(name: str) -> None:
    assert followed.split(_parsed(COMPILED[name]), "xgrammar") == (COMPILED[name], [])


def test_a_minimum_alone_stays_with_llguidance() -> None:
    """Its masks of one cost less than counting does; beside a maximum it is counted."""
    alone = {"type": "string", "minLength": 2}
    schema = _parsed(obj(a=alone, b=L))

    relaxed, positions = followed.split(schema, "guidance")

    assert relaxed == obj(a=alone, b=T)
    assert [(position.minimum, position.maximum) for position in positions] == [(0, None), (2, 9)]
    assert followed.split(alone, "guidance") == (alone, [])
    assert followed.split(alone, "xgrammar").positions


@pytest.mark.timeout(60)
def test_a_schema_with_too_many_places_is_compiled_as_it_is() -> None:
    """As with the automaton that asks what the 14th letter from the end was, each level doubles the sets."""
    defs = {f"n{level}": obj(a=_reference(level + 1), b=_reference(level + 1)) for level in range(1, 14)}
    defs |= {"n0": obj(a={"anyOf": [_reference(0), _reference(1)]}, b=_reference(0)), "n14": obj(s=S)}
    schema = _parsed({"$defs": defs, "$ref": "#/$defs/n0"})

    assert followed.split(schema, "xgrammar") == (schema, [])
    del defs["n0"]["properties"]["a"]["anyOf"][0]
    assert followed.split(_parsed({"$defs": defs, "$ref": "#/$defs/n0"}), "xgrammar").positions


def _reference(level: int) -> dict[str, Any]:
    return {"$ref": f"#/$defs/n{level}"}


def _parsed(schema: Any) -> Any:
    """Return a schema as a worker has it: no two places are the same object."""
    return json.loads(json.dumps(schema))
