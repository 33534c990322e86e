"""Following a JSON text byte by byte: where it stands, and how many characters its string has."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guided_contract.counting import NOTHING, Position
from guided_grammar.bounds import BETWEEN, NAME, OUTSIDE, TEXT, Bounds, Where

# Characters in all their spellings; halves of surrogate pairs included, which may meet and join.
PIECES = st.sampled_from(
    [
        *["a", "é", "漢", "🙂", "\x7f", "\\n", '\\"', "\\\\", "\\/", "\\u0041", "\\u00e9", "\\ud7FF"],
        *["\\uE000", "\\ud83d", "\\uDBFF", "\\ude00", "\\uDC00", "\\ud83d\\ude00"],
    ]
)
SPELLED = st.lists(PIECES, max_size=12).map("".join)
UNBOUNDED = Bounds([Position()])


def _cut(data: bytes, at: list[int]) -> list[bytes]:
    """Cut a text in pieces, anywhere: inside characters and escapes, too."""
    places = sorted({place % (len(data) + 1) for place in at} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(SPELLED, st.lists(st.integers(0, 200), max_size=8))
def test_characters_are_those_that_json_reads_however_the_bytes_arrive(spelled: str, cuts: list[int]) -> None:
    where: Where | None = Where()
    for piece in _cut(f'"{spelled}'.encode(), cuts):
        assert where is not None
        where = UNBOUNDED.advance(where, piece)

    assert where is not None
    assert where.mode >= TEXT
    assert where.characters == len(json.loads(f'"{spelled}"'))


@given(SPELLED, st.integers(0, 6), st.integers(0, 6), st.lists(st.integers(0, 200), max_size=8))
def test_a_string_is_refused_where_it_gets_too_long_or_closes_too_short(
    spelled: str, minimum: int, more: int, cuts: list[int]
) -> None:
    bounds = Bounds([Position(minimum=minimum, maximum=minimum + more)])
    where: Where | None = Where()
    for piece in _cut(f'"{spelled}"'.encode(), cuts):
        where = where and bounds.advance(where, piece)

    length = len(json.loads(f'"{spelled}"'))
    assert (where is not None) == (minimum <= length <= minimum + more)


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
    where: Where | None = Where()
    for piece in _cut(text.encode(), cuts):
        where = where and bounds.advance(where, piece)

    assert (where is not None) == (_longest(value) <= 2)
    if where is not None:
        assert where.mode in {OUTSIDE, BETWEEN}  # where a number can be longer, or behind the value
        assert where.frame is None


def _longest(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_longest, parts), default=0)


TREE = Bounds(
    [
        Position(properties={"a": 1, 'q"\n': 2, "free": NOTHING}, others=3),
        Position(maximum=1),
        Position(maximum=2),
        Position(items=2),
    ]
)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('{"a": "', 1),
        ('{ "b" : ["x", ["y"], {"n": {}} , "', 2),
        (r'{"q\"\n":"', 2),
        ('{"free": ["long", {"a": "', NOTHING),
        ('{"a":1,"other":["', 2),
        (r'{"\u0061":"', 3),  # both libraries take another spelling for another property
        ('{"free":{}, "a":"', 1),
        ('{"a":"x"} {"', NOTHING),
    ],
)
def test_the_position_is_the_paths(text: str, position: int) -> None:
    where = TREE.advance(Where(), text.encode())

    assert where is not None
    assert where.position == position or where.mode == NAME
