"""Where one sequence stands in its grammar: what holds for every library's matcher.

Masks must equal upstream's for the same backend, so acceptance, termination and end-of-sequence follow
vllm/v1/structured_output/backend_xgrammar.py and backend_guidance.py (0.32.0) case by case.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from guided_grammar.counted_text import CountedText
from guided_grammar.masks import Bitmask


class MatcherError(Exception):
    """The native matcher is in an error state; its sequence cannot go on.

    Parameters
    ----------
    said
        Why, in the library's own words, which may quote what was generated: not for a log.
    """

    def __init__(self, message: str, said: str = "") -> None:
        self.said = said
        super().__init__(message)


class SpentError(MatcherError):
    """What comes next in this text takes the library more work than it allows itself for a token."""


class Matcher(ABC):
    """Where one sequence stands in its grammar; a library's own gives what follows its five methods.

    Parameters
    ----------
    ends
        The tokens that end its text.

    Attributes
    ----------
    backend
        The name of the backend that fills its masks.
    counted
        What is counted beside the grammar; filled rows are restricted by it.
    """

    backend: str
    counted: CountedText | None = None

    def __init__(self, ends: Iterable[int]) -> None:
        self.ends = frozenset(ends)
        self._terminated = False

    def accept(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens, up to the grammar's end. False: a token is not allowed."""
        if self._terminated:
            return True
        is_last = not self.ends.isdisjoint(tokens)
        if is_last:
            tokens = self._to_end(tokens)
        if not self._consume(tokens):
            return False
        self._terminated = is_last
        return self.counted is None or self.counted.accept(tokens)

    def valid_prefix(self, drafts: Sequence[int]) -> int:
        """Return how many leading drafts the grammar allows; the state stays."""
        if self._terminated or not drafts:
            return 0
        known = drafts if self.ends.isdisjoint(drafts) else self._to_end(drafts)
        valid = self._count_valid(known)
        return valid if self.counted is None else self.counted.valid_prefix(known[:valid])

    def fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the next token's mask into `bitmask[row]`; not for a terminated matcher."""
        self._fill(bitmask, row)
        if self.counted is not None:
            self.counted.restrict(bitmask[row : row + 1], ())

    def reset(self) -> None:
        """Go back to the start."""
        self._rewind()
        self._terminated = False
        if self.counted is not None:
            self.counted.reset()

    def is_terminated(self) -> bool:
        """Return whether the end was accepted: nothing constrains what follows."""
        return self._terminated

    def _to_end(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the tokens up to the first that ends the text."""
        return tokens[: 1 + next(index for index, token in enumerate(tokens) if token in self.ends)]

    @abstractmethod
    def _consume(self, tokens: Sequence[int]) -> bool:
        """Advance; no token but the last ends the text. False: one is not allowed."""

    @abstractmethod
    def _count_valid(self, drafts: Sequence[int]) -> int:
        """Return how many leading drafts are allowed; no draft but the last ends the text."""

    @abstractmethod
    def _fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the mask of the next token."""

    @abstractmethod
    def _rewind(self) -> None:
        """Go back to the start."""
