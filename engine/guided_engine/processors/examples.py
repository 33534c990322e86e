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
    def __init__(self, size: int, penalty: float, exempt: frozenset[int]) -> None:
        self._size = size
        self._penalty = penalty
        self._exempt = exempt
        self._tokens: list[int] = []
        self._followers: dict[tuple[int, ...], set[int]] = {}

    def accept(self, token: int) -> None:
        prefix = self._prefix()
        if len(prefix) == self._size - 1:
            self._followers.setdefault(prefix, set()).add(token)
        self._tokens.append(token)

    def apply(self, logits: Any) -> None:
        repeating = self._followers.get(self._prefix(), set()) - self._exempt
        if repeating:
            logits[sorted(repeating)] -= self._penalty

    def fork(self) -> Self:
        other = object.__new__(type(self))
        other._size = self._size
        other._penalty = self._penalty
        other._exempt = self._exempt
        other._tokens = self._tokens.copy()
        other._followers = {prefix: set(tokens) for prefix, tokens in self._followers.items()}
        return other

    def _prefix(self) -> tuple[int, ...]:
        return tuple(self._tokens[len(self._tokens) - self._size + 1 :]) if self._size > 1 else ()
