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


class Spy(ProcessorFactory):
    """Remembers the arguments that it was shown, and makes no state."""

    seen: ClassVar[list[Mapping[str, Any]]] = []

    def create(self, sequence: SequenceInfo) -> SequenceProcessor | None:
        self.seen.append(sequence.arguments)
        return None
