"""One sequence's part of a step: what a backend fills."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from guided_grammar.matching import Matcher

_M = TypeVar("_M", bound=Matcher)


@dataclass(slots=True)
class GuidedRows(Generic[_M]):
    """`rows` rows from `row` on, for the next token and after each draft.

    `drafts` are the drafts that are known, perhaps fewer than scheduled, never -1. Filling sets `filled`, the
    number of rows that hold masks, and `valid`, the number of leading drafts that may be accepted. The other
    rows are full, since no accepted draft reaches them or the grammar has ended. `is_slow`: filling its rows
    alone holds up all others. `number` is whatever tells its sequence apart.
    """

    matcher: _M
    row: int
    rows: int
    drafts: Sequence[int]
    number: int = 0
    valid: int = field(default=0, init=False)
    filled: int = field(default=0, init=False)
    error: Exception | None = field(default=None, init=False)
    is_slow: bool = field(default=False, init=False)

    @property
    def end(self) -> int:
        """Return the row after the last."""
        return self.row + self.rows
