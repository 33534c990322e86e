"""Bounds of strings that are counted instead of compiled: what they take out of a mask.

Inside a plain JSON string, the mask under maxLength is the mask without it, less the tokens that are longer
than what remains; before minLength it is that, less the tokens that close the string. Only tokens that open
another string within themselves are followed byte by byte: those that a mask allows, once at each place, and
only if that string could break a bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from guided_contract.counting import NOTHING, Position
from guided_engine.ranks.token_lengths import TokenTable
from guided_grammar.bounds import BETWEEN, OUTSIDE, TEXT, Bounds, Where, scan

_MOST_VERDICTS: Final = 256  # places of a grammar where tokens that open strings have been followed


class CountedGrammar:
    """The counted bounds of one grammar, shared by all of its sequences; see counted_text.Rule."""

    def __init__(self, positions: Sequence[Position], table: TokenTable) -> None:
        self.bounds = Bounds(positions)
        self.start = self.bounds.start
        self.table = table
        self._smallest_maximum = min(self.bounds.maxima)
        self._largest_minimum = max(self.bounds.minima)
        self._suspects: dict[int, _Bits] = {}
        self._verdicts: dict[tuple[int, int, bytes, Any], _Verdicts] = {}

    def advance(self, where: Where, token: int) -> Where | None:
        """Return where the text stands after the token id `token`; None if it breaks a bound."""
        plain = self.table.plain[token]
        if where.mode != TEXT or plain < 0:
            return self.bounds.advance(where, self.table.tokens[token])
        mode, characters, position, name, frame = where
        characters += plain
        return (
            Where(mode, characters, position, name, frame)
            if characters <= self.bounds.maxima[position]
            else None
        )

    def restrict(self, row: npt.NDArray[np.int32], where: Where) -> None:
        """Clear the tokens that would break a bound from one mask row, [ceil(vocabulary / 32)] int32."""
        mode, characters, position, _, _ = where
        table = self.table
        if mode >= TEXT:
            remaining = self.bounds.maxima[position] - characters
            if remaining < table.longest(mode):
                np.bitwise_and(row, table.no_longer_than(mode, remaining), out=row)
            missing = self.bounds.minima[position] - characters
            if missing > 0:
                # No token closes a string of more characters than the longest token has.
                mask = table.not_closing_before(mode, min(missing, table.longest(mode) + 1))
                np.bitwise_and(row, mask, out=row)
        if mode not in self._suspects:
            self._suspects[mode] = self._find_suspects(mode)
        if self._suspects[mode].words.size:
            self._restrict_suspects(row, where)

    def _find_suspects(self, mode: int) -> "_Bits":
        """Return the tokens that open, in this mode, a string that could break some bound of the grammar."""
        begun = self.bounds.begun_by(self.table.quoting, mode)
        if mode == BETWEEN:
            return _Bits.of(begun)
        openers = self.table.openers(mode)
        could = (openers.longest > self._smallest_maximum) | (openers.shortest < self._largest_minimum)
        return _Bits.of([*{*openers.tokens[could].tolist(), *begun}])

    def _restrict_suspects(self, row: npt.NDArray[np.int32], where: Where) -> None:
        """Follow the suspects that the row allows, each once at each place, and take out those that break."""
        mode, _, position, name, frame = where
        key = mode, position, name, frame
        verdicts = self._verdicts.get(key)
        if verdicts is None:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            suspects = self._suspects[mode]
            verdicts = self._verdicts[key] = _Verdicts(suspects.bits.copy(), np.zeros_like(suspects.bits))
        words = self._suspects[mode].words
        unknown = row[words] & verdicts.unknown
        if unknown.any():
            verdicts.unknown &= ~unknown
            for index in np.flatnonzero(unknown).tolist():
                tokens = _tokens(int(words[index]), int(unknown[index]))
                broken = [t for t in tokens if not self._opens_well(where, self.table.tokens[t])]
                verdicts.broken[index] |= _Bits.of(broken).bits.sum(dtype=np.int32)
        row[words] &= ~verdicts.broken

    def _opens_well(self, where: Where, token: bytes) -> bool:
        if where.mode >= TEXT:  # this string's own characters are counted above, and change with every token
            _, _, end = scan(where.mode, token)
            mode = OUTSIDE if where.frame else BETWEEN
            where, token = Where(mode, 0, NOTHING, b"", where.frame), token[end:]
        return self.bounds.advance(where, token) is not None


class _Bits(NamedTuple):
    """A set of tokens, as the words of a row that hold them, and their bits there."""

    words: npt.NDArray[np.intp]
    bits: npt.NDArray[np.int32]

    @classmethod
    def of(cls, tokens: Sequence[int]) -> Self:
        found: dict[int, int] = {}
        for token in tokens:
            found[token >> 5] = found.get(token >> 5, 0) | 1 << (token & 31)
        words = np.fromiter(found.keys(), dtype=np.intp, count=len(found))
        return cls(words, np.fromiter(found.values(), dtype=np.uint32, count=len(found)).view(np.int32))


@dataclass(slots=True)
class _Verdicts:
    """What is known of the suspects at one place, in the suspects' words."""

    unknown: npt.NDArray[np.int32]
    broken: npt.NDArray[np.int32]


def _tokens(word: int, bits: int) -> list[int]:
    return [word * 32 + bit for bit in range(32) if bits >> bit & 1]
