"""Logits processors that misbehave or watch, for tests."""

from collections.abc import Mapping
from typing import Any, ClassVar

from guided_engine.processors.interface import ProcessorFactory, SequenceInfo, SequenceProcessor


class GivesNan(ProcessorFactory):
    """Leaves a NaN in every row."""

    def create(self, _sequence: SequenceInfo) -> SequenceProcessor | None:
        return _Nan()


class _Nan(SequenceProcessor):
    def accept(self, _token: int) -> None:
        pass

    def apply(self, logits: Any) -> None:
        logits[3] = float("nan")


class Marks(ProcessorFactory):
    """Has a sequence consist of the token that its request names as `mark`; no state without one."""

    def create(self, sequence: SequenceInfo) -> SequenceProcessor | None:
        token = sequence.arguments.get("mark")
        return None if token is None else _Marks(token)


class _Marks(SequenceProcessor):
    def __init__(self, token: int) -> None:
        self._token = token

    def accept(self, _token: int) -> None:
        pass

    def apply(self, logits: Any) -> None:
        logits[self._token] += 1000.0


class Spy(ProcessorFactory):
    """Remembers the arguments that it was shown, and makes no state."""

    seen: ClassVar[list[Mapping[str, Any]]] = []

    def create(self, sequence: SequenceInfo) -> SequenceProcessor | None:
        self.seen.append(sequence.arguments)
        return None
