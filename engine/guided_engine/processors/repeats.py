"""A sequence of tokens, and what would repeat an earlier part of it: DRY and n-grams stand on it."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from guided_engine.processors.edits import MOST_IDS, Edits
from guided_engine.processors.interface import SequenceProcessor

LONGEST: Final = 255  # of a repeat, in tokens: what a byte holds
_ROOM: Final = 64
_FEW: Final = 16  # tokens; so many are cheaper one by one
_MANY: Final = 4096  # places that count in a step; in texts without a loop some hundred do
_LEFT: Final = np.arange(LONGEST, -1, -1, dtype=np.uint8)  # tokens that are left before each of the last ones

Ints = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.uint8]


class RepeatsProcessor(SequenceProcessor):
    """Adds a value to each token that would make a repeat longer, by the length of that repeat.

    For each place in the sequence it keeps how many tokens before the place are those before the end: the
    length of the repeat that the place's token would make longer. A token that comes costs a few operations
    on as many bytes as there are tokens, whatever they are; a row costs more the more places count. All is
    written from right to left, so that an index is a distance from the end; tokens ahead are written into the
    room that the next ones will take.

    Parameters
    ----------
    values
        [longest + 1] what a token gets by the length of the repeat before it; of several, the longest counts,
        and one that is longer than `longest` as that. Those before `shortest` are not used.
    shortest
        Length of the repeats that count.
    exempt
        [vocabulary + 1] which tokens get nothing; the last is for ids beyond the vocabulary.
    also
        More of them.
    are_breakers
        Whether these tokens also end a repeat, so that none is part of one.
    last_n
        How many tokens are looked at, the last ones; None: all.
    """

    def __init__(  # noqa: PLR0913 - what the two processors differ in, by name
        self,
        values: npt.NDArray[np.float32],
        *,
        shortest: int,
        exempt: npt.NDArray[np.bool_],
        also: frozenset[int],
        are_breakers: bool,
        last_n: int | None = None,
    ) -> None:
        self._values = values
        self._longest = len(values) - 1
        self._shortest = shortest
        self._exempt = exempt
        self._also = sorted(also)
        self._are_breakers = are_breakers
        self._last_n = last_n
        self._vocab_size = len(exempt) - 1
        self._pushed = 0
        self._count = 0  # of tokens looked at
        self._start = 0  # of them in `_tokens`
        # Behind them one that is never looked at, so that what points too far finds no token.
        self._tokens = np.full(1, self._vocab_size, np.int32)
        self._lengths = np.zeros(0, np.uint8)

    def accept(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        new = self._read(tokens if self._last_n is None else tokens[-self._last_n :])
        self._reserve(len(new))
        self._pushed += len(new)
        if len(new) > _FEW:
            self._tokens[self._start - len(new) : self._start] = new[::-1]
            self._start -= len(new)
            self._count = self._seen(len(new))
            self._compare()
            return
        for token in new.tolist():
            self._step(self._lengths, self._lengths, 0, token)
            self._start -= 1
            self._count = self._seen(1)

    def prepare(self, ahead: Sequence[int]) -> list[Edits | None]:
        """Return the values now, and after each of the tokens ahead."""
        drafts = self._read(ahead).tolist()
        self._reserve(len(drafts))
        width = self._seen(len(drafts))
        lengths = np.zeros((1 + len(drafts), width), np.uint8)
        lengths[0, : self._count] = self._lengths[: self._count]
        for row, token in enumerate(drafts):
            self._step(lengths[row], lengths[row + 1], row, token)
        if width == self._last_n:  # a repeat is as long as what is looked at of the earlier one
            far = lengths[:, -len(_LEFT) :]
            np.minimum(far, _LEFT[-width:], out=far)
        return self._edits(lengths)

    def _marked(self, tokens: Ints) -> npt.NDArray[np.bool_]:
        marked = self._exempt.take(tokens, mode="clip")
        for token in self._also:
            marked |= tokens == token
        return marked

    def _read(self, tokens: Sequence[int]) -> Ints:
        """Return tokens, each that ends a repeat as a number of its own, beyond the vocabulary."""
        read = np.array(tokens, np.int32)
        ends = (self._marked(read) if self._are_breakers else read >= self._vocab_size).nonzero()[0]
        if len(ends):
            read[ends] = self._vocab_size + self._pushed + ends
        return read

    def _seen(self, more: int) -> int:
        count = self._count + more
        return count if self._last_n is None else min(count, self._last_n)

    def _reserve(self, room: int) -> None:
        """Have room for more tokens; what is no longer looked at is dropped then."""
        if self._start >= room:
            return
        kept = self._tokens[self._start : self._start + self._count]
        self._start = self._count + room + _ROOM
        self._tokens = np.full(self._start + self._count + 1, self._vocab_size, np.int32)
        self._tokens[self._start : -1] = kept
        grown = np.zeros(len(self._tokens), np.uint8)
        grown[: self._count] = self._lengths[: self._count]
        self._lengths = grown

    def _step(self, before: Lengths, after: Lengths, ahead: int, token: int) -> None:
        """Write a token, `ahead` tokens past the end, and make the lengths after it of those before it."""
        start = self._start - ahead
        count = self._seen(ahead)
        before = before[:count]
        after = after[:count]
        np.add(before, (before < self._longest).view(np.uint8), out=after)
        after *= (self._tokens[start : start + count] == token).view(np.uint8)
        self._tokens[start - 1] = token

    def _compare(self) -> None:
        """Make the lengths of the tokens alone."""
        tokens = self._tokens[self._start : self._start + self._count]
        self._lengths[: self._count] = 0
        alike = np.ones(self._count, np.bool_)
        for back, token in enumerate(tokens[: self._longest].tolist(), start=1):
            alike = alike[:-1] & (tokens[back:] == token)
            if not alike.any():
                break
            self._lengths[: len(alike)] += alike

    def _edits(self, lengths: Lengths) -> list[Edits | None]:
        rows, width = lengths.shape
        counts = lengths >= self._shortest
        if np.count_nonzero(counts) > _MANY:
            self._thin(lengths)
            counts = lengths >= self._shortest
        found = counts.ravel().nonzero()[0]
        if not len(found):
            return [None] * rows
        row = found // width
        tokens = self._tokens.take(found - row * (width + 1) + self._start, mode="clip")
        # Row, token and length as one number: sorted, the last of each row and token is the longest.
        keys = (row << 31 | tokens) << 8 | lengths.ravel().take(found)
        keys.sort()
        groups = keys >> 8
        is_last = np.ones(len(groups), np.bool_)
        np.not_equal(groups[1:], groups[:-1], out=is_last[:-1])
        keys, groups = keys[is_last], groups[is_last]
        ids = (groups & 0x7FFFFFFF).astype(np.int32)
        if not self._are_breakers:
            is_free = ~self._marked(ids)
            keys, groups, ids = keys[is_free], groups[is_free], ids[is_free]
        of = (keys & 0xFF).astype(np.uint8)
        values = self._values[of]
        edits: list[Edits | None] = []
        starts = [row << 31 for row in range(rows)]
        ends = [start | self._vocab_size for start in starts]
        bounds = groups.searchsorted(starts + ends).tolist()
        for row in range(rows):
            low, high = bounds[row], bounds[rows + row]
            mine: Any = slice(low, high)
            if high - low > MOST_IDS:
                mine = low + self._foremost(row, ids[mine], of[mine])
            edits.append(Edits(ids[mine], values[mine]) if low < high else None)
        return edits

    def _thin(self, lengths: Lengths) -> None:
        """Leave out places of the longest repeats whose token another one has: in a loop, nearly all."""
        for ahead, row in enumerate(lengths):
            tokens = self._tokens[self._start - ahead :][: self._seen(ahead)]
            seen = row[: len(tokens)]
            is_longest = seen == self._longest
            first = is_longest.argmax()
            if is_longest[first]:
                is_longest &= tokens == tokens[first]
                is_longest[first] = False
                seen *= (~is_longest).view(np.uint8)

    def _foremost(self, row: int, ids: Ints, lengths: Lengths) -> npt.NDArray[np.intp]:
        """Return where the MOST_IDS of the longest repeats are; of equal ones those that came last."""
        start = self._start - row
        each, nearest = np.unique(self._tokens[start : start + self._seen(row)], return_index=True)
        order = np.lexsort((nearest[each.searchsorted(ids)], LONGEST - lengths))
        return np.sort(order[:MOST_IDS])
