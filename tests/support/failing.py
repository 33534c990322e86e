"""A logits processor that fails on purpose, for the first of every `among` sequences."""

from typing import Any

from guided_engine.processors.interface import ProcessorFactory, SequenceInfo, SequenceProcessor


class FailsLater(ProcessorFactory):
    """Makes states of which every `among`-th raises after `after` tokens."""

    def __init__(self, after: int, among: int = 1) -> None:
        self._after = after
        self._among = among
        self._made = 0

    def create(self, _sequence: SequenceInfo) -> SequenceProcessor | None:
        self._made += 1
        return _State(self._after) if self._made % self._among == 1 % self._among else None


class _State(SequenceProcessor):
    def __init__(self, left: int) -> None:
        self._left = left

    def accept(self, _token: int) -> None:
        self._left -= 1

    def apply(self, _logits: Any) -> None:
        if self._left <= 0:
            raise RuntimeError("made to fail")
