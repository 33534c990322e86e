"""Which bounds are counted along a text, and how: byte by byte, however it is spelt."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guided_contract.counting import Position
from guided_grammar.bounds import BETWEEN, OUTSIDE, TEXT, Bounds, Where
from guided_sidecar.grammar.compile import followed

S: dict[str, Any] = {"type": "string", "maxLength": 3}
L: dict[str, Any] = {"type": "string", "minLength": 2, "maxLength": 9}
T: dict[str, Any] = {"type": "string"}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


# name: schema, texts that a counter must let pass, texts that it must refuse; the usual ones: test_masks.py
COUNTED: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "named and other properties": (
        {**obj(a=L), "additionalProperties": S},
        [{"a": "12345", "b": "123"}],
        [{"a": "12345", "b": "1234"}, {"a": "1"}],
    ),
    "one branch alone has it": (
        {"anyOf": [obj(kind={"const": "a"}, a=S), obj(kind={"const": "b"}, b=L)]},
        [{"kind": "long", "b": "12"}],
        [{"a": "long"}, {"b": "1"}],
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
    assert "Length" not in json.dumps(relaxed)
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


def _parsed(schema: Any) -> Any:
    """Return a schema as a worker has it: no two places are the same object."""
    return json.loads(json.dumps(schema))


# Characters in all their spellings; halves of surrogate pairs included, which may meet and join.
PIECES = st.sampled_from(
    [
        *["a", "é", "漢", "🙂", "\x7f", "\\n", '\\"', "\\\\", "\\/", "\\u0041", "\\u00e9", "\\ud7FF"],
        *["\\uE000", "\\ud83d", "\\uDBFF", "\\ude00", "\\uDC00", "\\ud83d\\ude00"],
    ]
)
SPELLED = st.lists(PIECES, max_size=12).map("".join)


def _cut(data: bytes, at: list[int]) -> list[bytes]:
    """Cut a text in pieces, anywhere: inside characters and escapes, too."""
    places = sorted({place % (len(data) + 1) for place in at} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def _followed(bounds: Bounds, text: str, cuts: list[int]) -> Where | None:
    where: Where | None = Where()
    for piece in _cut(text.encode(), cuts):
        where = where and bounds.advance(where, piece)
    return where


@given(SPELLED, st.integers(0, 6), st.integers(0, 6), st.lists(st.integers(0, 200), max_size=8))
def test_a_string_is_refused_where_it_gets_too_long_or_closes_too_short(
    spelled: str, minimum: int, more: int, cuts: list[int]
) -> None:
    """Its characters are those that JSON reads, however the bytes arrive."""
    length = len(json.loads(f'"{spelled}"'))
    where = _followed(Bounds([Position()]), f'"{spelled}', cuts)
    assert where is not None
    assert (where.mode >= TEXT, where.characters) == (True, length)
    bounds = Bounds([Position(minimum=minimum, maximum=minimum + more)])
    assert bool(_followed(bounds, f'"{spelled}"', cuts)) == (minimum <= length <= minimum + more)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([None, 1]), st.lists(st.integers(0, 400), max_size=10))
def test_every_string_of_any_text_is_told_from_the_names(
    value: Any, indent: int | None, cuts: list[int]
) -> None:
    """A tree in which everything is bounded refuses exactly the texts that hold a longer string."""
    bounds = Bounds([Position(maximum=2, others=0, items=0)])
    text = json.dumps(value, ensure_ascii=indent is None, indent=indent)
    where = _followed(bounds, text, cuts)
    assert (where is not None) == (_longest(value) <= 2)
    if where is not None:
        assert where.mode in {OUTSIDE, BETWEEN}  # where a number can be longer, or behind the value
        assert where.frame is None


def _longest(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_longest, parts), default=0)
