"""Where a walk of the proof stands in a string of JSON, judged by Python's own reader of strings."""

import json
import random
from json.decoder import scanstring

import pytest

from guided_sidecar.grammar.compile.proof_walk import _string_after

LETTERS = 'ab"\\/\n\u2028\N{GRINNING FACE} {}[],:'


def inside(text: str) -> list[bool]:
    """Return for each place of a JSON text whether what comes next is within a string."""
    places, at = [], 0
    while at < len(text):
        if text[at] == '"':
            end = scanstring(text, at + 1)[1]
            places += [False, *[True] * (end - at - 1)]
            at = end
        else:
            places.append(False)
            at += 1
    return places


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_knows_where_a_string_ends(seed: int) -> None:
    """Once `\\\\"` was read as an escaped quote, and the walk wrote brackets in a string to no end."""
    chooser = random.Random(seed)
    words = ["".join(chooser.choices(LETTERS, k=chooser.randrange(9))) for _ in range(20)]
    text = json.dumps(dict(zip(words, words[::-1], strict=True)), ensure_ascii=seed % 2 == 0)
    wanted, at, state = inside(text), 0, (False, False)
    while at < len(text):
        assert state[0] == wanted[at], (seed, text[:at])
        more = text[at : at + chooser.randrange(1, 5)]
        state = _string_after(more.encode(), *state)
        at += len(more)
    assert state == (False, False)
