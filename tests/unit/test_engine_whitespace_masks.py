"""White space that a rank counts: every short text of a small vocabulary, read plainly."""

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from guided_engine.ranks.whitespace_masks import BoundedSpace, BoundedSpaceInTags, SpaceTable
from guided_grammar.counted_text import CountedText

TOKENS = [b" ", b"\n \n", b'"', b"\\", b"{", b'",', b',  "', b'"    "', b"", b" a", b'\\" ', b"1    2"]
MOST = 3
ALL = (1 << len(TOKENS)) - 1


def row(bits: int = ALL) -> Any:
    return np.array([bits], dtype=np.uint32).view(np.int32)


def allowed(bits: Any) -> set[int]:
    return {token for token in range(len(TOKENS)) if int(bits.view(np.uint32)[0]) >> token & 1}


def keeps(tokens: Sequence[int]) -> bool:
    """Return whether no run outside of strings is too long; the last string may be open."""
    text = b"".join(TOKENS[token] for token in tokens)
    outside = re.sub(rb'"(?:[^"\\]|\\.)*(?:"|\\?$)', b'""', text, flags=re.DOTALL)
    return all(len(run) <= MOST for run in re.findall(rb"[ \n]+", outside))


def test_masks_and_acceptance_are_those_of_the_text() -> None:
    rule = BoundedSpace(SpaceTable(TOKENS, len(TOKENS), MOST))
    for length in range(4):
        for tokens in itertools.product(range(len(TOKENS)), repeat=length):
            text = CountedText(rule)
            assert text.accept(tokens) == keeps(tokens)
            if not keeps(tokens):
                continue
            bits = row()
            assert text.restrict(bits.reshape(1, -1), ()) == 0
            assert allowed(bits) == {token for token in range(len(TOKENS)) if keeps((*tokens, token))}
            for token in allowed(row()):
                assert text.valid_prefix([token]) == (token in allowed(bits))


ONE, BOTH, NONE = {b" "}, {b" ", b"   "}, set[bytes]()


@pytest.mark.parametrize(
    ("others", "left"),
    [
        (b"{", [ONE, ONE, NONE, NONE, ONE]),  # structure
        (b"t", [ONE, ONE, NONE, NONE, ONE]),  # `true`
        (b"z{", [BOTH] * 5),  # free text, or a string
        (b"", [ONE, ONE, BOTH, BOTH, ONE]),  # a tag's own, once nothing else can follow
    ],
)
def test_in_tags_white_space_is_bounded_where_no_letter_may_follow(
    others: bytes, left: list[set[bytes]]
) -> None:
    tokens = [b" ", b"   ", b"{", b"z", b"q", b"t"]
    bits = sum(1 << tokens.index(text) for text in (b" ", b"   ", *(bytes([one]) for one in others)))
    text = CountedText(BoundedSpaceInTags(SpaceTable(tokens, len(tokens), 2)))
    for written, spaces in zip(([], [2, 0], [2, 0, 0], [0, 1], [1, 3]), left, strict=True):
        text.reset()
        assert text.accept(written)
        rows = row(bits).reshape(1, -1)
        text.restrict(rows, ())
        assert (
            BOTH & {tokens[token] for token in range(len(tokens)) if int(rows[0, 0]) >> token & 1} == spaces
        )


def test_a_draft_that_a_mask_forbids_is_not_valid() -> None:
    tokens = [b" ", b"{", b"z"]
    text = CountedText(BoundedSpaceInTags(SpaceTable(tokens, len(tokens), 2)))
    rows = np.tile(row(0b011), (4, 1))
    assert text.restrict(rows, [0, 0, 0]) == 2
    assert [int(one) for one in rows[:, 0]] == [0b011, 0b011, 0b010, 0b011]
    assert text.valid_prefix([0, 0, 0]) == 3  # of what masks have not been made for, nothing is known
