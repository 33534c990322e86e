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
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)


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
        self, row: Any, chooser: random.Random, ending: bytes | None = None, *, turns: bool = False
    ) -> Iterator[int]:
        """Yield token ids that a mask row allows: some at random, then all.

        Parameters
        ----------
        row
            [ceil(vocabulary / 32)] int32.
        ending
            A text that is to end soon: tokens that may end it come first, those that begin an array or
            object late, and white space last.
        turns
            What a string may need before it can end comes before all others, too.
        """
        bits = np.unpackbits(row.view(np.uint8), bitorder="little", count=len(self.texts))
        allowed = np.flatnonzero(bits)
        if ending is not None:
            is_in_string = _ESCAPE.sub(b"", ending).count(b'"') % 2 == 1
            groups = [*(self._in_string if is_in_string else self._after_value)]
            if turns and is_in_string:
                groups += chooser.sample(self._turns, len(_TURNS))
            for group in groups:
                if len(found := group[bits[group] > 0]):
                    yield from np.roll(found, chooser.randrange(len(found))).tolist()
            written = allowed[self._lengths[allowed] > 0]
            # The longest, so that what is written letter by letter comes to its end.
            yield from sorted(_drawn(written, chooser), key=lambda token: -self._lengths[token])
            yield from written.tolist()
        yield from _drawn(allowed, chooser)
        yield from allowed.tolist()

    def _matching(self, pattern: bytes) -> Any:
        is_one = re.compile(pattern).fullmatch
        return np.array([token for token, text in enumerate(self.texts) if is_one(text)], dtype=np.int64)


def _drawn(tokens: Any, chooser: random.Random) -> list[int]:
    return [int(tokens[chooser.randrange(len(tokens))]) for _ in range(_DRAWS) if len(tokens)]


def _length(text: bytes) -> int:
    if not text.strip():
        return 0
    return 1 if set(text) & {*b"{["} else 1 + len(text)
