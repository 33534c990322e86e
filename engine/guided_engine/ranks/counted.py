"""Bounds of strings that are counted instead of compiled: what they take out of a mask, per sequence.

Inside a plain JSON string, the mask under maxLength is the mask without it, less the tokens that are longer
than what remains; before minLength it is that, less the tokens that close the string. Only tokens that open
another string within themselves are followed one by one, and only where that string could break a bound.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from guided_contract.counting import TEXT, Bounds, Position, Where
from guided_engine.ranks.counted_tokens import TokenTable

_START: Final = Where()


class CountedGrammar:
    """The counted bounds of one grammar, shared by all of its sequences."""

    def __init__(self, positions: Sequence[Position], table: TokenTable) -> None:
        self.bounds = Bounds(positions)
        self.table = table
        self._smallest_maximum = min(self.bounds.maxima)
        self._largest_minimum = max(self.bounds.minima)
        self._suspects: dict[int, _Suspects | None] = {}

    def advance(self, where: Where, token: int) -> Where | None:
        """Return where the text stands after one more token, None if it breaks a bound."""
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
        """Take the tokens that would break a bound out of one mask row  # [words] int32."""
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
        suspects = self._suspects[mode]
        if suspects is not None:
            suspects.restrict(row, lambda token: self.bounds.advance(where, table.tokens[token]) is not None)

    def _find_suspects(self, mode: int) -> "_Suspects | None":
        openers = self.table.openers(mode)
        could_break = (openers.longest > self._smallest_maximum) | (openers.shortest < self._largest_minimum)
        return _Suspects(openers.tokens[could_break]) if could_break.any() else None


class _Suspects:
    """Tokens that must be followed byte by byte where a mask allows them."""

    def __init__(self, tokens: npt.NDArray[np.int32]) -> None:
        self._tokens = tokens
        self._words = tokens >> 5
        self._bits = np.left_shift(1, tokens & 31, dtype=np.int32)

    def restrict(self, row: npt.NDArray[np.int32], is_valid: Callable[[int], bool]) -> None:
        for index in np.flatnonzero(row[self._words] & self._bits):
            if not is_valid(int(self._tokens[index])):
                row[self._words[index]] &= ~self._bits[index]


class CountedText:
    """One sequence's text, followed through the counted bounds of its grammar."""

    def __init__(self, grammar: CountedGrammar) -> None:
        self._grammar = grammar
        self._where = _START

    def accept(self, tokens: Sequence[int]) -> bool:
        """Advance by tokens that the grammar has accepted; False: one of them breaks a bound."""
        for token in tokens:
            where = self._grammar.advance(self._where, token)
            if where is None:
                return False
            self._where = where
        return True

    def valid_prefix(self, drafts: Sequence[int]) -> int:
        """Return how many leading drafts, all allowed by the grammar, keep the bounds; the state stays."""
        where = self._where
        for index, token in enumerate(drafts):
            after = self._grammar.advance(where, token)
            if after is None:
                return index
            where = after
        return len(drafts)

    def restrict(self, rows: npt.NDArray[np.int32], drafts: Sequence[int]) -> int:
        """Restrict filled rows: the next token's, and those after each of so many drafts as there are more.

        Returns
        -------
        valid
            How many of the drafts keep the bounds. Rows behind them are left as they are.
        """
        where = self._where
        for index, row in enumerate(rows):
            self._grammar.restrict(row, where)
            if index < len(drafts):
                after = self._grammar.advance(where, drafts[index])
                if after is None:
                    return index
                where = after
        return len(drafts)

    def reset(self) -> None:
        """Go back to the start."""
        self._where = _START
