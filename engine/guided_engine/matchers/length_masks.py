"""Bounds of strings that are counted instead of compiled: what they take out of a mask.

Inside a plain JSON string, the mask under maxLength is the mask without it, less the tokens that are longer
than what remains; before minLength it is that, less the tokens that close the string. Only tokens that open
another string within themselves are followed byte by byte: those that a mask allows, once at each place, and
only if that string could break a bound.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from guided_contract.counting import NOTHING, Position
from guided_engine.matchers.token_rows import row_of, tokens_of
from guided_engine.matchers.token_table import TokenTable
from guided_grammar.bounds import BETWEEN, OUTSIDE, TEXT, Bounds, Where, scan
from guided_grammar.masks import FULL_MASK, Bitmask, forbid

_MOST_PLACES: Final = 256  # of a grammar where tokens that open strings have been followed


class CountedGrammar:
    """The counted bounds of one grammar, shared by all of its sequences; see counted_text.Rule."""

    def __init__(self, positions: Sequence[Position], table: TokenTable) -> None:
        self.bounds = Bounds(positions)
        self.start = self.bounds.start
        self.table = table
        # By the words of a row that hold them, and their bits there.
        self._between = self._suspects(BETWEEN)
        self._outside = self._suspects(OUTSIDE)
        self._inside = self._suspects(TEXT)
        # By place: those that are not followed yet, and those that may follow, as bits of these words.
        self._followed: dict[tuple[int, int, bytes, Any], tuple[Bitmask, Bitmask]] = {}

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

    def restrict(self, row: Bitmask, where: Where) -> None:
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
        words, bits = self._between if mode == BETWEEN else self._outside if mode == OUTSIDE else self._inside
        if words.size:
            self._restrict_suspects(row, where, words, bits)

    def _suspects(self, mode: int) -> tuple[npt.NDArray[np.intp], Bitmask]:
        """Return the tokens that may open, in this mode, a string that breaks some bound of the grammar."""
        table, bounds = self.table, self.bounds
        found = bounds.begun_by(table.quoting, mode)
        if mode != BETWEEN:
            found += table.opening(min(bounds.maxima), max(bounds.minima), is_inside=mode == TEXT)
        row = row_of(found, len(table.tokens))
        words = np.flatnonzero(row)
        return words, row[words]

    def _restrict_suspects(
        self, row: Bitmask, where: Where, words: npt.NDArray[np.intp], bits: Bitmask
    ) -> None:
        """Follow the suspects that the row allows, each once at each place, and take out those that break."""
        mode, _, position, name, frame = where
        key = mode, position, name, frame
        followed = self._followed.get(key)
        if followed is None:
            if len(self._followed) >= _MOST_PLACES:
                self._followed.clear()
            followed = self._followed[key] = bits.copy(), np.full_like(bits, FULL_MASK)
        unknown, allowed = followed
        asked = row[words] & unknown
        if asked.any():
            unknown &= ~asked
            for at in tokens_of(asked):
                if not self._opens_well(where, self.table.tokens[int(words[at >> 5]) * 32 + (at & 31)]):
                    forbid(allowed, at)
        row[words] &= allowed

    def _opens_well(self, where: Where, token: bytes) -> bool:
        if where.mode >= TEXT:  # this string's own characters are counted above, and change with every token
            _, _, end = scan(where.mode, token)
            mode = OUTSIDE if where.frame else BETWEEN
            where, token = Where(mode, 0, NOTHING, b"", where.frame), token[end:]
        return self.bounds.advance(where, token) is not None
