"""What each token of a vocabulary does to a JSON string, worked out once, as masks to be and-ed into rows."""

import functools
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from guided_engine.matchers.token_rows import packed
from guided_grammar.bounds import JOIN, OUTSIDE, STARTS, TEXT, scan
from guided_grammar.masks import Bitmask, words

_MASKS: Final = 512  # of 16 KiB each for 131k tokens


class TokenTable:
    """A vocabulary as one grammar library reads it: each token's bytes, empty for those that are no text.

    A mask row has `vocab_size` tokens.

    Attributes
    ----------
    plain
        By token, the characters of one without quote and backslash, else -1.
    quoting
        The tokens with a quote, and their bytes.
    longest, no_longer_than, not_closing_before
        In one mode inside a string: the most characters that a token adds, and mask rows of those that add at
        most so many, and of those that do not close a string which has fewer than so many with them.
    """

    def __init__(self, tokens: Sequence[bytes], vocab_size: int) -> None:
        self.tokens = tokens
        self._words = words(vocab_size)
        self._first = np.array([token[0] if token else 0 for token in tokens], dtype=np.uint8)
        self.quoting = {index: token for index, token in enumerate(tokens) if b'"' in token}
        self._escaping = [index for index, token in enumerate(tokens) if b"\\" in token]
        self._measure = functools.cache(self._measured)
        self.longest = functools.cache(lambda mode: int(self._measure(mode)[0].max()))
        self.no_longer_than = functools.lru_cache(_MASKS)(self._no_longer_than)
        self.not_closing_before = functools.lru_cache(_MASKS)(self._not_closing_before)
        begun, closes = self._measure(TEXT)
        special = closes.copy()
        special[self._escaping] = True
        self.plain: list[int] = np.where(special, -1, begun).tolist()  # a list is read fastest

    def opening(self, longest: int, shortest: int, *, is_inside: bool) -> list[int]:
        """Return the tokens that may open a string of more than `longest` characters, or close one of fewer.

        Than `shortest`, that is. `is_inside`: they begin inside of another string. Some do neither.
        """
        found = []
        for index, token in self.quoting.items():
            opened = token.split(b'"')[1 + is_inside :]
            most = len(token) if b"\\" in token else max(map(len, opened), default=0)
            if opened and (most > longest or (len(opened) > 1 and shortest)):
                found.append(index)
        return found

    def _no_longer_than(self, mode: int, characters: int) -> Bitmask:
        return self._packed(self._measure(mode)[0] <= characters)

    def _not_closing_before(self, mode: int, characters: int) -> Bitmask:
        begun, closes = self._measure(mode)
        return self._packed(~closes | (begun >= characters))

    def _packed(self, allowed: npt.NDArray[np.bool_]) -> Bitmask:
        bits = np.ones(self._words * 32, dtype=np.bool_)
        bits[: len(allowed)] = allowed[: len(bits)]
        return packed(bits)

    def _measured(self, mode: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """Return, by token, the characters that it adds in a mode, up to the quote that closes the string.

        What is told of tokens that cannot go on in the mode does not matter.
        """
        begun: npt.NDArray[np.int32]
        closes: npt.NDArray[np.bool_]
        if mode == TEXT:
            begun, closes = self._characters(), np.zeros(len(self.tokens), dtype=np.bool_)
            some = [*self.quoting, *self._escaping]
        else:
            begun, closes = self._measure(TEXT)
            begun, closes = begun.copy(), closes.copy()
            starts = b"\\" if mode == JOIN else STARTS[mode]
            some = np.flatnonzero(np.isin(self._first, np.frombuffer(starts, dtype=np.uint8))).tolist()
        for index in some:
            end, begun[index], _ = scan(mode, self.tokens[index])
            closes[index] = end == OUTSIDE
        return begun, closes

    def _characters(self) -> npt.NDArray[np.int32]:
        """Return the characters that begin in each token."""
        bytes_ = np.frombuffer(b"".join(self.tokens), dtype=np.uint8)
        begins = np.concatenate(([0], np.cumsum((bytes_ & 0xC0) != 0x80, dtype=np.int32)))
        ends = np.cumsum([len(token) for token in self.tokens], dtype=np.int64)
        return np.diff(begins[ends], prepend=begins[:1]).astype(np.int32)
