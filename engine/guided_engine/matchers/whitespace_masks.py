"""White space between the tokens of a JSON text, counted beside its grammar, which allows any number.

Such space may end anywhere: what is behind it may as well follow at once. So a token is allowed within the
bound if it is allowed without it and holds no run of white space, outside of strings, that is too long; and
no bound leads to a dead end. Compiled into a grammar, a bound costs xgrammar a second; llguidance has none.
"""

import functools
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from guided_engine.matchers.token_rows import packed
from guided_grammar.masks import Bitmask, allows, words

OUTSIDE, STRING, ESCAPE = range(3)  # where a text stands: between strings, in one, behind its backslash

_SPACE: Final = b" \t\n\r"
_QUOTE, _BACKSLASH = b'"\\'
# Letters that no JSON has outside of strings: where a grammar takes none of them, white space is structure.
_NEVER_JSON: Final = tuple(bytes([letter]) for letter in b"zqjxkwvy")
# Where one of these may follow, white space is not all that can; which spares a look at the whole row.
_STRUCTURE: Final = tuple(bytes([letter]) for letter in b'"}],{[:0<')


class Run(NamedTuple):
    """Where a text stands, and with how many characters of white space it ends."""

    mode: int = OUTSIDE
    length: int = 0


class SpaceTable:
    """A bound of white space, `most` characters, over one vocabulary (bytes; see TokenTable).

    `letters` are some tokens that JSON never has outside of strings, `structure` some that it has there.
    """

    def __init__(self, tokens: Sequence[bytes], vocab_size: int, most: int) -> None:
        self.tokens = tokens
        self.most = most
        self._words = words(vocab_size)
        self._leading = np.array([len(token) - len(token.lstrip(_SPACE)) for token in tokens], dtype=np.int32)
        # Of a run that does not begin with the token; most tokens have none in any mode.
        within = re.compile(rb"[^ \t\n\r][ \t\n\r]{%d}" % (most + 1)).search
        some = [number for number, token in enumerate(tokens) if within(token)]
        self._within = {
            mode: [number for number in some if _follow(mode, 0, tokens[number])[1] > most]
            for mode in (OUTSIDE, STRING, ESCAPE)
        }
        self.mask = functools.cache(self._mask)
        self.follow = functools.lru_cache(1 << 16)(self._follow)
        known = {token: number for number, token in enumerate(tokens) if len(token) == 1}
        self.letters = [known[token] for token in _NEVER_JSON if token in known][:2]
        self.structure = [known[token] for token in _STRUCTURE if token in known]

    def _follow(self, mode: int, length: int, token: int) -> Run | None:
        """Return where a text stands after a token (its id); None: a run got too long."""
        run, longest = _follow(mode, length, self.tokens[token])
        return run if longest <= self.most else None

    def _mask(self, run: Run) -> Bitmask | None:
        """Return the tokens that keep the bound where a text stands; None: all do."""
        allowed = np.ones(self._words * 32, dtype=np.bool_)
        if run.mode == OUTSIDE:
            count = min(len(self._leading), len(allowed))
            allowed[:count] = self._leading[:count] <= self.most - run.length
        allowed[[token for token in self._within[run.mode] if token < len(allowed)]] = False
        return None if allowed.all() else packed(allowed)


class BoundedSpace:
    """The bound in texts that are JSON; see counted_text.Rule."""

    start = Run()

    def __init__(self, table: SpaceTable) -> None:
        self._table = table

    def advance(self, run: Run, token: int) -> Run | None:
        """Return where a text stands after a token that its grammar allows; None: a run got too long."""
        return self._table.follow(run.mode, run.length, token)

    def restrict(self, row: Bitmask, run: Run) -> None:
        """Clear the tokens with too long a run from one mask row."""
        mask = self._table.mask(run)
        if mask is not None:
            np.bitwise_and(row, mask, out=row)


class BoundedSpaceInTags:
    """The bound in texts of which JSON is a part, by what their masks say of where they stand.

    White space that alone can follow stays: it belongs to the tag. So may a string's, whose pattern takes no
    letter, be bounded, too.
    """

    start = Run()

    def __init__(self, table: SpaceTable) -> None:
        self._table = table

    def advance(self, run: Run, token: int) -> Run:
        """Return the white space with which a text ends."""
        text = self._table.tokens[token]
        rest = text.rstrip(_SPACE)
        return Run(OUTSIDE, len(text) - len(rest) + (0 if rest else run.length))

    def restrict(self, row: Bitmask, run: Run) -> None:
        """Clear the tokens with too long a run from one mask row, where a text stands in structure."""
        table = self._table
        mask = table.mask(Run(OUTSIDE, min(run.length, table.most)))
        if mask is None or not table.letters or any(allows(row, token) for token in table.letters):
            return
        if any(allows(row, token) for token in table.structure) or (row & mask).any():
            np.bitwise_and(row, mask, out=row)


def _follow(mode: int, length: int, token: bytes) -> tuple[Run, int]:
    """Return where a text stands after a token, and the longest run on the way, what was there included."""
    longest = 0
    for byte in token:
        if mode == ESCAPE:
            mode = STRING
        elif mode == STRING:
            mode = OUTSIDE if byte == _QUOTE else ESCAPE if byte == _BACKSLASH else STRING
        elif byte in _SPACE:
            length += 1
            longest = max(longest, length)
        else:
            mode, length = (STRING if byte == _QUOTE else OUTSIDE), 0
    return Run(mode, length), longest
