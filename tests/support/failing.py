"""Logits processors that fail on purpose, for the first of every `among` sequences, or take their time."""

import time
from pathlib import Path
from typing import Any

from guided_engine.processors.interface import ProcessorFactory, SequenceInfo, SequenceProcessor

_PATIENCE_S = 20.0


class FailsLater(ProcessorFactory):
    """Makes states of which every `among`-th raises after `after` tokens, and not before `once` is a file."""

    def __init__(self, after: int, among: int = 1, once: str = "") -> None:
        self._after = after
        self._among = among
        self._once = Path(once) if once else None
        self._made = 0

    def create(self, _sequence: SequenceInfo) -> SequenceProcessor | None:
        self._made += 1
        return _State(self._after, self._once) if self._made % self._among == 1 % self._among else None


class Lingers(ProcessorFactory):
    """Makes a step take as long as a larger model's: the tiny one writes 400 tokens in a moment."""

    def create(self, _sequence: SequenceInfo) -> SequenceProcessor:
        return _Slow()


class _Slow(SequenceProcessor):
    def accept(self, _token: int) -> None:
        pass

    def apply(self, _logits: Any) -> None:
        time.sleep(0.01)


class _State(SequenceProcessor):
    def __init__(self, left: int, once: Path | None) -> None:
        self._left = left
        self._once = once

    def accept(self, _token: int) -> None:
        self._left -= 1

    def apply(self, _logits: Any) -> None:
        if self._left > 0:
            return
        until = time.monotonic() + _PATIENCE_S
        while self._once is not None and not self._once.exists() and time.monotonic() < until:
            time.sleep(0.005)  # holds up the step, and nothing that came before it
        raise RuntimeError("made to fail")
