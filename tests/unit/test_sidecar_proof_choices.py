"""Which tokens a walk of the proof takes: those that a mask row allows, any of them, and all in the end."""

import itertools
import random
from typing import Any

import numpy as np
import pytest

from guided_sidecar.grammar.compile.token_choice import TokenChoice

SIZE = 1000
ENDING = {3: b"}", 500: b'"', 970: b"]"}
STOP = 999


@pytest.fixture(scope="module")
def choice() -> TokenChoice:
    tokens = [ENDING.get(number, b"t%d" % number) for number in range(SIZE)]
    return TokenChoice(tokens, frozenset([STOP]))


def _row(allowed: set[int], words: int = 32) -> Any:
    bits = np.zeros(32 * words, dtype=np.uint8)
    bits[list(allowed)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


@pytest.mark.parametrize("ends_soon", [False, True])
@pytest.mark.parametrize(
    "allowed",
    [set(), {0}, {31}, {STOP}, {5, 6, 640}, {3, 7, 970}, set(range(SIZE))],
    ids=["none", "first", "sign bit", "stop", "few", "some that end", "all"],
)
def test_all_that_are_allowed_come_and_no_others(
    choice: TokenChoice,
    allowed: set[int],
    ends_soon: bool,  # noqa: FBT001 - a case
) -> None:
    chosen = choice.among(_row(allowed), random.Random(0), ends_soon=ends_soon)
    assert set(chosen) == allowed


@pytest.mark.parametrize("words", [31, 33, 40])
def test_a_row_may_be_wider_than_the_vocabulary_and_its_last_bits_set(
    choice: TokenChoice, words: int
) -> None:
    allowed = {1, 2} | set(range(SIZE, 32 * words))
    found = list(
        choice.among(
            _row({token for token in allowed if token < 32 * words}, words), random.Random(0), ends_soon=True
        )
    )
    assert set(found) == {1, 2}


def test_what_ends_a_text_comes_first_when_it_is_to_end(choice: TokenChoice) -> None:
    row = _row({3, 970, STOP} | set(range(10, 400)))
    first = list(itertools.islice(choice.among(row, random.Random(0), ends_soon=True), 3))
    assert first[0] == STOP
    assert set(first[1:]) == {3, 970}
    row = _row({3, 500, 970} | set(range(10, 400)))
    for is_in_string, wanted in ((False, {3, 970}), (True, {500})):
        firsts = {
            next(choice.among(row, random.Random(seed), ends_soon=True, is_in_string=is_in_string))
            for seed in range(50)
        }
        assert firsts == wanted


@pytest.mark.parametrize("needed", [b"Z", b"T", b":", b"@"], ids=bytes.decode)
def test_what_a_string_needs_to_end_comes_first_at_some_turn(needed: bytes) -> None:
    """A URI's scheme has no end without a colon, and takes any number of capital letters."""
    turns = (b"Z", b"T", b":", b"-", b"@")
    tokens = [b"abc", b"12", *turns]
    choice = TokenChoice(tokens, frozenset())
    row = _row(set(range(len(tokens))))
    firsts = {
        tokens[
            next(choice.among(row, random.Random(seed), ends_soon=True, is_in_string=True, is_turning=True))
        ]
        for seed in range(200)
    }
    assert needed in firsts
    assert firsts <= set(turns)


@pytest.mark.parametrize("allowed", [{7, 8, 500, 900}, set(range(100, 900))], ids=["few", "most"])
def test_every_token_may_come_first(choice: TokenChoice, allowed: set[int]) -> None:
    seeds = 50 * len(allowed)
    firsts = {
        next(choice.among(_row(allowed), random.Random(seed), ends_soon=False)) for seed in range(seeds)
    }
    assert len(firsts) > 0.95 * len(allowed)


def test_a_seed_has_its_walk(choice: TokenChoice) -> None:
    row = _row({5, 6, 7, 640})
    one, other = (
        list(itertools.islice(choice.among(row, random.Random(1), ends_soon=False), 4)) for _ in range(2)
    )
    assert one == other
