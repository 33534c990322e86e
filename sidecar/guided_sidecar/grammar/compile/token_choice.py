"""Which token a walk of the proof takes next, of those that a mask row allows."""

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

_DRAWS: Final = 4  # of tokens at random, before all that are allowed are looked at in order
_ENDING: Final = b'"}],:'
# What leads to the end of a string that letters and digits never end: a date's, an address's, a duration's.
_TURNS: Final = (re.compile(rb"[Z@]"), re.compile(rb"[A-Z]"), re.compile(rb"[.:/-]"))
# What ends a JSON text soonest, the first first: after a value, and within a string.
_AFTER_VALUE: Final = (re.compile(rb"[}\]]+"), re.compile(rb"[}\],:]+"))
_IN_STRING: Final = (re.compile(rb'"[}\]]*'), re.compile(rb'"[}\],:]*'))
_OPENING: Final = frozenset(b"{[")


class _Enders:
    """Tokens that may end a text, the best first."""

    def __init__(
        self, stops: Sequence[int], tokens: Sequence[bytes], patterns: Sequence[re.Pattern[bytes]]
    ) -> None:
        tiers = [list(stops), *([] for _ in patterns)]
        for number, text in enumerate(tokens):
            if len(text) > 1 and text.strip(_ENDING):
                continue  # most of them, soonest
            tier = next((tier for tier, one in enumerate(patterns) if one.fullmatch(text)), None)
            if tier is not None and number not in stops:
                tiers[1 + tier].append(number)
        self._tokens = list(itertools.chain(*tiers))
        self._tiers = np.repeat(np.arange(len(tiers)), [len(tier) for tier in tiers])
        self._words = np.array(self._tokens, dtype=np.int64) >> 5
        self._bits = np.array(self._tokens, dtype=np.int64) & 31

    def allowed(self, row: Any, chooser: random.Random) -> Iterator[int]:
        """Yield those that a row allows: one of the best, then all others in order."""
        if len(row) <= self._words.max(initial=0):
            row = np.pad(row, (0, 1 + int(self._words.max()) - len(row)))
        found = np.flatnonzero(row[self._words] >> self._bits & 1)
        if not len(found):
            return
        best = int(np.searchsorted(self._tiers[found], self._tiers[found[0]], side="right"))
        first = chooser.randrange(best)
        yield self._tokens[found[first]]
        yield from (self._tokens[index] for place, index in enumerate(found) if place != first)


class TokenChoice:
    """Choices among one tokenizer's tokens.

    Parameters
    ----------
    tokens
        Each token's bytes, as many as the logits are wide; a token beyond them cannot be sampled.
    stop_tokens
        Those that end a text.
    """

    def __init__(self, tokens: Sequence[bytes], stop_tokens: frozenset[int]) -> None:
        self._count = len(tokens)
        # Of what is no white space; what opens an array or object is as good as the shortest.
        self._lengths = [_length(text) for text in tokens]
        stops = [token for token in stop_tokens if token < len(tokens)]
        self._after_value = _Enders(stops, tokens, _AFTER_VALUE)
        self._in_string = _Enders(stops, tokens, _IN_STRING)
        self._turns = [_Enders((), tokens, (turn,)) for turn in _TURNS]

    def among(
        self,
        row: Any,
        chooser: random.Random,
        *,
        ends_soon: bool,
        is_in_string: bool = False,
        is_turning: bool = False,
    ) -> Iterator[int]:
        """Yield token ids that a mask row allows: some at random, then all.

        `row` is [ceil(vocabulary / 32)] int32. With `ends_soon`, tokens that may end the text come first,
        those that begin an array or object late, and white space last. With `is_turning`, next come those
        that a string may need before it can end.
        """
        if not ends_soon:
            for _ in range(_DRAWS):  # where most are allowed, this is all
                token = chooser.randrange(self._count)
                if row[token >> 5] >> (token & 31) & 1:
                    yield token
        else:
            yield from (self._in_string if is_in_string else self._after_value).allowed(row, chooser)
            if is_turning:
                for turn in chooser.sample(self._turns, len(self._turns)):
                    yield from turn.allowed(row, chooser)
        filled = np.flatnonzero(row)
        drawn = [token for token in _some(filled, row[filled], chooser) if token < self._count]
        if ends_soon:  # the longest, so that what is written letter by letter comes to its end
            drawn.sort(key=self._lengths.__getitem__, reverse=True)
            yield from (token for token in drawn if self._lengths[token])
            yield from (token for token in self._every(row) if self._lengths[token])
        yield from drawn
        yield from self._every(row)

    def _every(self, row: Any) -> Iterator[int]:
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        yield from (token for token in map(int, np.flatnonzero(bits)) if token < self._count)


def _length(text: bytes) -> int:
    if not text.strip():
        return 0
    return 1 if set(text) & _OPENING else 1 + len(text)


def _some(filled: Any, bits: Any, chooser: random.Random) -> Iterator[int]:
    """Yield some tokens at random of a row's `filled` words, the numbers of which have `bits`.

    Unpacking a row of 131,072 tokens takes 300 us, five times as long as its mask.
    """
    for _ in range(min(_DRAWS, len(filled))):
        index = chooser.randrange(len(filled))
        allowed = int(bits[index])
        yield 32 * int(filled[index]) + chooser.choice([bit for bit in range(32) if allowed >> bit & 1])
