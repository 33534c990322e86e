"""What each token of a vocabulary does to a JSON string, worked out once, as masks to be and-ed into rows."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from guided_grammar.bounds import ESCAPE, JOIN, JOIN_ESCAPE, NAME_ESCAPE, OUTSIDE, STARTS, TEXT, scan
from guided_grammar.masks import words

_MASKS: Final = 512  # of 16 KiB each for 131k tokens
_NEVER_CLOSED: Final = 1 << 30
_ESCAPES: Final = (NAME_ESCAPE, ESCAPE, JOIN_ESCAPE)


@dataclass(frozen=True, slots=True)
class Openers:
    """Tokens that open another string within themselves: the longest of them, and the shortest closed one."""

    tokens: npt.NDArray[np.int32]
    longest: npt.NDArray[np.int32]
    shortest: npt.NDArray[np.int32]


class TokenTable:
    """A vocabulary as one grammar library reads it: each token's bytes, empty for those that are no text.

    A mask row has `vocab_size` tokens. `quoting` are those with a quote.
    """

    def __init__(self, tokens: Sequence[bytes], vocab_size: int) -> None:
        self.tokens = tokens
        self._words = words(vocab_size)
        self._joined = b"".join(tokens)
        self._first = np.array([token[0] if token else 0 for token in tokens], dtype=np.uint8)
        self.quoting = {index: token for index, token in enumerate(tokens) if b'"' in token}
        self._measured: dict[int, tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]] = {}
        self._openers: dict[int, Openers] = {}
        self._longest: dict[int, int] = {}
        self.no_longer_than = functools.lru_cache(_MASKS)(self._no_longer_than)
        self.not_closing_before = functools.lru_cache(_MASKS)(self._not_closing_before)
        begun, closes = self._measure(TEXT)
        special = (
            np.fromiter((b"\\" in token for token in tokens), dtype=np.bool_, count=len(tokens)) | closes
        )
        # Characters of a token without quote and backslash, else -1; a list is read fastest.
        self.plain: list[int] = np.where(special, -1, begun).tolist()

    def longest(self, mode: int) -> int:
        """Return the most characters that a token can add to a string in this mode."""
        if mode not in self._longest:
            self._longest[mode] = int(self._measure(mode)[0].max())
        return self._longest[mode]

    def openers(self, mode: int) -> Openers:
        """Return the tokens that open a string within themselves where they begin in this mode."""
        # Digits after \u neither open nor close anything, so only these three differ.
        start = mode if mode == OUTSIDE else ESCAPE if mode in _ESCAPES else TEXT
        if start not in self._openers:
            found = [
                (index, max(lengths), min((n for n, closed in opened if closed), default=_NEVER_CLOSED))
                for index in self.quoting
                if (opened := list(_opened(start, self.tokens[index])))
                and (lengths := [n for n, _ in opened])
            ]
            tokens, longest, shortest = np.array(found, dtype=np.int32).reshape(-1, 3).T
            self._openers[start] = Openers(tokens, longest, shortest)
        return self._openers[start]

    def _no_longer_than(self, mode: int, characters: int) -> npt.NDArray[np.int32]:
        return self._packed(self._measure(mode)[0] <= characters)

    def _not_closing_before(self, mode: int, characters: int) -> npt.NDArray[np.int32]:
        begun, closes = self._measure(mode)
        return self._packed(~closes | (begun >= characters))

    def _packed(self, allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        bits = np.ones(self._words * 32, dtype=np.bool_)
        bits[: len(allowed)] = allowed[: len(bits)]
        return np.packbits(bits, bitorder="little").view(np.int32)

    def _measure(self, mode: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """Return, by token, the characters that it adds in a mode, up to the quote that closes the string."""
        if mode not in self._measured:
            self._measured[mode] = self._measure_text() if mode == TEXT else self._measure_other(mode)
        return self._measured[mode]

    def _measure_text(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        bytes_ = np.frombuffer(self._joined, dtype=np.uint8)
        begins = np.concatenate(([0], np.cumsum((bytes_ & 0xC0) != 0x80, dtype=np.int32)))
        ends = np.cumsum([len(token) for token in self.tokens], dtype=np.int64)
        begun = np.diff(begins[ends], prepend=begins[:1]).astype(np.int32)
        closes = np.zeros(len(self.tokens), dtype=np.bool_)
        for index, token in enumerate(self.tokens):
            if b'"' in token or b"\\" in token:
                end, begun[index], _ = scan(TEXT, token)
                closes[index] = end == OUTSIDE
        return begun, closes

    def _measure_other(self, mode: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """Measure the tokens that can go on in a mode; what is told of others does not matter."""
        begun, closes = self._measure(TEXT)
        begun, closes = begun.copy(), closes.copy()
        starts = b"\\" if mode == JOIN else STARTS[mode]
        for index in np.flatnonzero(np.isin(self._first, np.frombuffer(starts, dtype=np.uint8))):
            end, begun[index], _ = scan(mode, self.tokens[index])
            closes[index] = end == OUTSIDE
        return begun, closes


def _opened(mode: int, token: bytes) -> Iterator[tuple[int, bool]]:
    """Yield the characters of every string that a token opens within itself, and whether it closes it."""
    at = 0
    if mode != OUTSIDE:
        mode, _, at = scan(mode, token)
    while mode == OUTSIDE and (at := token.find(b'"', at) + 1):
        mode, begun, at = scan(TEXT, token, at)
        yield begun, mode == OUTSIDE
