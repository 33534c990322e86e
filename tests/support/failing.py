"""Logits processors that fail on purpose, for the first of every `among` sequences, or take their time."""

import time
from collections.abc import Sequence
from pathlib import Path

from guided_engine.processors.interface import (
    Context,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)

_PATIENCE_S = 20.0


class FailsParams(Params):
    after: int
    among: int = 1
    once: str = ""


class FailsLater(ProcessorFactory[FailsParams]):
    """Makes states of which every `among`-th raises after `after` tokens, and not before `once` is a file."""

    Params = FailsParams

    def __init__(self, params: FailsParams, context: Context) -> None:
        super().__init__(params, context)
        self._made = 0

    def create(self, _sequence: SequenceInfo[FailsParams]) -> SequenceProcessor | None:
        self._made += 1
        after, among, once = self.params.after, self.params.among, self.params.once
        return _State(after, Path(once) if once else None) if self._made % among == 1 % among else None


class LingersParams(Params):
    step_s: float = 0.01
    until: str = ""


class Lingers(ProcessorFactory[LingersParams]):
    """Makes a step take as long as a larger model's, until the file `until` is there."""

    Params = LingersParams

    def create(self, sequence: SequenceInfo[LingersParams]) -> SequenceProcessor:
        return _Slow(sequence.params)


class _Slow(SequenceProcessor):
    def __init__(self, params: LingersParams) -> None:
        self._params = params

    def accept(self, _tokens: Sequence[int]) -> None:
        pass

    def prepare(self, ahead: Sequence[int]) -> list[None]:
        if not (self._params.until and Path(self._params.until).exists()):
            time.sleep(self._params.step_s)
        return [None] * (1 + len(ahead))


class _State(SequenceProcessor):
    def __init__(self, left: int, once: Path | None) -> None:
        self._left = left
        self._once = once

    def accept(self, tokens: Sequence[int]) -> None:
        self._left -= len(tokens)

    def prepare(self, ahead: Sequence[int]) -> list[None]:
        if self._left > 0:
            return [None] * (1 + len(ahead))
        until = time.monotonic() + _PATIENCE_S
        while self._once is not None and not self._once.exists() and time.monotonic() < until:
            time.sleep(0.005)  # holds up the step, and nothing that came before it
        raise RuntimeError("made to fail")
