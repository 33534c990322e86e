"""Which token a walk of the proof takes next, of those that a mask row allows."""

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

_DRAWS: Final = 4  # of tokens at random, before all that are allowed are looked at in order
# What ends a JSON text soonest, the first first: after a value, and within a string.
_AFTER_VALUE: Final = (rb"[}\]]+", rb"[}\],:]+")
_IN_STRING: Final = (rb'"[}\]]*', rb'"[}\],:]*')
# What leads to the end of a string that letters and digits never end: a date's, an address's, a duration's.
_TURNS: Final = (rb"[Z@]", rb"[A-Z]", rb"[.:/-]")


class Choice:
    """Chooses among one tokenizer's tokens.

    Parameters
    ----------
    tokens
        Each token's bytes, as many as the logits are wide; a token beyond them cannot be sampled.
    stop_tokens
        Those that end a text; their own is empty.
    """

    def __init__(self, tokens: Sequence[bytes], stop_tokens: frozenset[int]) -> None:
        self.texts = [b"" if number in stop_tokens else text for number, text in enumerate(tokens)]
        stops = np.array([token for token in stop_tokens if token < len(tokens)], dtype=np.int64)
        self._after_value = [stops, *map(self._matching, _AFTER_VALUE)]
        self._in_string = [stops, *map(self._matching, _IN_STRING)]
        self._turns = [*map(self._matching, _TURNS)]
        # Of what is no white space; what opens an array or object is as good as the shortest.
        self._lengths = np.array([_length(text) for text in tokens])

    def among(
        self, row: Any, chooser: random.Random, *, ends_soon: bool, is_in_string: bool, is_turning: bool
    ) -> Iterator[int]:
        """Yield token ids that a mask row allows: some at random, then all.

        Parameters
        ----------
        row
            [ceil(vocabulary / 32)] int32.
        ends_soon
            Tokens that may end the text come first, those that begin an array or object late, and white
            space last; with `is_turning`, next those that a string may need before it can end.
        """
        bits = np.unpackbits(row.view(np.uint8), bitorder="little", count=len(self.texts))
        first = (self._in_string if is_in_string else self._after_value) if ends_soon else []
        for group in [*first, *(chooser.sample(self._turns, len(_TURNS)) if is_turning else ())]:
            if len(found := group[bits[group] > 0]):
                yield from np.roll(found, chooser.randrange(len(found))).tolist()
        if not ends_soon:  # where most are allowed, this is all
            yield from (token for token in chooser.choices(range(len(bits)), k=_DRAWS) if bits[token])
        allowed = np.flatnonzero(bits.view(bool))
        drawn = [int(allowed[chooser.randrange(len(allowed))]) for _ in range(_DRAWS) if len(allowed)]
        if ends_soon:  # the longest, so that what is written letter by letter comes to its end
            drawn.sort(key=lambda token: -self._lengths[token])
            yield from (token for token in drawn if self._lengths[token])
            yield from allowed[self._lengths[allowed] > 0].tolist()
        yield from drawn
        yield from allowed.tolist()

    def _matching(self, pattern: bytes) -> Any:
        is_one = re.compile(pattern).fullmatch
        return np.array([token for token, text in enumerate(self.texts) if is_one(text)], dtype=np.int64)


def _length(text: bytes) -> int:
    if not text.strip():
        return 0
    return 1 if set(text) & {*b"{["} else 1 + len(text)
