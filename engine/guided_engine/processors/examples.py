"""A processor that ships with the plugin, and shows how one is written."""

from collections.abc import Sequence
from typing import Any, Self

from guided_engine.processors.interface import ProcessorFactory, SequenceInfo, SequenceProcessor


class NoRepeat(ProcessorFactory):
    """Discourages a run of `size` tokens that the sequence has generated before.

    Unlike a ban, a penalty cannot leave a grammar without a token to choose.

    Parameters
    ----------
    size
        Length of the run in tokens, at least 1.
    penalty
        What a repeating token's logit loses.
    exempt
        Tokens that may always come again; stop tokens may anyway.
    """

    def __init__(self, size: int = 3, penalty: float = 100.0, exempt: Sequence[int] = ()) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        self._size = size
        self._penalty = penalty
        self._exempt = frozenset(exempt)

    def create(self, sequence: SequenceInfo) -> SequenceProcessor:
        """Return the state of a sequence that has generated nothing."""
        return _NoRepeatState(self._size, self._penalty, self._exempt | sequence.stop_tokens)


class _NoRepeatState(SequenceProcessor):
    """What followed each run so far. A fork keeps its own additions and looks the rest up in its origin."""

    def __init__(
        self, size: int, penalty: float, exempt: frozenset[int], origin: "_NoRepeatState | None" = None
    ) -> None:
        self._size = size
        self._penalty = penalty
        self._exempt = exempt
        self._origin = origin
        self._followers: dict[tuple[int, ...], set[int]] = {}
        # The last size - 1 tokens, fewer at the start.
        self.run: tuple[int, ...] = () if origin is None else origin.run

    def accept(self, token: int) -> None:
        if len(self.run) == self._size - 1:
            self._followers.setdefault(self.run, set()).add(token)
        self.run = (*self.run, token)[1 - self._size :] if self._size > 1 else ()

    def apply(self, logits: Any) -> None:
        repeating = self.followers(self.run) - self._exempt
        if repeating:
            logits[sorted(repeating)] -= self._penalty

    def fork(self) -> Self:
        return type(self)(self._size, self._penalty, self._exempt, self)

    def followers(self, run: tuple[int, ...]) -> set[int]:
        """Return the tokens that have followed a run."""
        own = self._followers.get(run, set())
        return own if self._origin is None else own | self._origin.followers(run)
