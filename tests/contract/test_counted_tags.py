"""Lengths of strings in a structural tag, which ranks count, judged by llguidance's own compiled bounds."""

import functools
import json
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guided_engine.ranks.length_masks import CountedGrammar
from guided_engine.ranks.token_table import TokenTable
from guided_grammar.backend import BackendError
from guided_grammar.counted_text import CountedText
from guided_grammar.masks import words as mask_words
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import tagged
from support.rank import EOS, VOCAB, ByteVocabulary

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own imports warn
DRAWN: Final = settings(max_examples=60, suppress_health_check=list(HealthCheck))


def _value(**bounds: int) -> dict[str, Any]:
    return {"type": "string", **bounds}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


SHORT, LONG = _value(maxLength=1), _value(minLength=2, maxLength=3)
SCHEMAS: Final[list[Any]] = [
    SHORT,
    _object(a=SHORT),
    _object(a=LONG, b={"type": "integer"}),
    {"type": "array", "items": LONG, "maxItems": 2},
    {"type": "integer"},
    {"type": "null"},
]
TEXTS: Final = st.text('a<"{}', min_size=1, max_size=3)


def _json(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": schema}


def _tag(begin: str, schema: Any, end: str) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": _json(schema), "end": end}


TAGS: Final = st.lists(st.builds(_tag, TEXTS, st.sampled_from(SCHEMAS), TEXTS), min_size=1, max_size=3)


def _triggered(tags: list[Any], length: int) -> dict[str, Any]:
    triggers = sorted({tag["begin"][:length] for tag in tags})
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


def _separated(tags: list[Any], separator: str) -> dict[str, Any]:
    return {"type": "tags_with_separator", "tags": tags, "separator": separator}


LISTS: Final = st.builds(_triggered, TAGS, st.integers(1, 3)) | st.builds(_separated, TAGS, TEXTS)


def _sequence(before: str, part: Any, behind: str) -> dict[str, Any]:
    around = [{"type": "const_string", "value": text} for text in (before, behind)]
    return {"type": "sequence", "elements": [around[0], part, around[1]]}


def _repeated(kind: str, part: Any) -> dict[str, Any]:
    return {"type": kind, "content": part}


def _either(*parts: Any) -> dict[str, Any]:
    return {"type": "or", "elements": [*parts]}


FORMATS: Final = (
    LISTS
    | st.builds(_sequence, TEXTS, LISTS, TEXTS)
    | st.builds(_repeated, st.sampled_from(["plus", "star", "optional"]), LISTS)
    | st.builds(_either, LISTS, LISTS)
)


@functools.cache
def library() -> Any:
    return Backends(ByteVocabulary())["guidance"]


def _allowed(matcher: Matcher) -> set[int]:
    mask: Any = np.full((1, mask_words(VOCAB)), -1, dtype=np.int32)
    matcher.fill(mask, 0)
    bits = np.unpackbits(mask[0].view(np.uint8), bitorder="little")
    return {int(token) for token in np.flatnonzero(bits[:VOCAB])}


def _counting(relaxed: Any, positions: Any) -> Matcher:
    matcher = library().compile("structural_tag", json.dumps(relaxed)).matcher()
    matcher.counted = CountedText(CountedGrammar(positions, TokenTable(library().tokens(), VOCAB)))
    return matcher


@DRAWN
@given(FORMATS, st.randoms(use_true_random=False))
def test_where_a_value_begins_is_told_by_the_text_alone(form: Any, chance: Any) -> None:
    """Of drawn texts around values, that contain one another or run into one another, or do not."""
    tag = {"type": "structural_tag", "format": form}
    relaxed, positions = tagged.split(tag, "guidance")
    if not positions:
        return
    try:
        theirs = library().compile("structural_tag", json.dumps(tag)).matcher()
    except BackendError:  # it is not told which of two texts is meant
        return
    ours, text = _counting(relaxed, positions), b""
    for _ in range(60):
        allowed = _allowed(ours)
        assert allowed == _allowed(theirs), text
        # What the tags are made of, so that most texts have some.
        plain = sorted(token for token in allowed if token < 256 or token == EOS)  # not special ones
        token = chance.choice([*plain, *sorted(allowed & {*b'a<"{}[]:,'}) * 40])
        assert ours.accept([token])
        assert theirs.accept([token])
        if token == EOS:
            break
        text += bytes([token])


FREE: Final = {"type": "triggered_tags", "triggers": ["}{"], "tags": [_tag("}{", SHORT, "!")]}
BRACE: Final = {"type": "const_string", "value": "{"}


@pytest.mark.parametrize(
    ("form", "is_counted"),
    [
        (FREE, True),
        (_sequence("x", {"type": "optional", "content": FREE}, ""), True),
        ({"type": "sequence", "elements": [BRACE, {"type": "optional", "content": FREE}]}, True),
        ({"type": "sequence", "elements": [FREE, BRACE]}, False),
        (_repeated("star", FREE), False),
        (_either(FREE, BRACE), False),
        (_either(FREE, {**FREE, "triggers": ["}"]}), False),
        ({"type": "tag", "begin": "<", "content": FREE, "end": "{"}, False),
        ({"type": "tag", "begin": "<", "content": _json(SHORT), "end": ["!", "<"]}, False),
    ],
    ids=json.dumps,
)
def test_free_text_and_what_follows_it_begin_no_value_together(form: Any, is_counted: bool) -> None:  # noqa: FBT001 - a table's
    """`}` of free text and `{` behind it are no trigger to a library, and would be a value's begin to us."""
    tag = {"type": "structural_tag", "format": form}
    _, positions = tagged.split(tag, "guidance")
    try:
        library().compile("structural_tag", json.dumps(tag))
    except BackendError:
        positions = []
    assert bool(positions) == is_counted
