"""What the processors of a step's sequences change in its logits, in the arrays that go to the device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from guided_contract.errors import ErrorCode
from guided_engine.processors import dense
from guided_engine.processors.edits import FORBIDDEN, Edits
from guided_engine.processors.interface import DenseFactory
from guided_engine.processors.sequence import Prepared

# How a row is changed; what forbids tokens may leave none.
ADDS: Final = 0
FORBIDS: Final = 1
IS_ONLY: Final = 2

# What a sequence ends with whose row came out so.
FAULTS: Final = {
    dense.IS_EMPTY: ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN,
    dense.IS_WRONG: ErrorCode.SEQUENCE_PROCESSOR_FAILED,
}

_NOTHING: Final = Edits()


@dataclass(slots=True)
class DenseStep:
    """What one DenseFactory is to be given in a step: its results, and whose row each is of."""

    factory: DenseFactory[Any]
    places: list[tuple[str, int]] = field(default_factory=list)  # request, and its row counted from its first
    results: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StepEdits:
    """Changes of a step's rows: how many each request has, from its first, in the order of the arrays.

    `counts` [rows] are the ids of each row, `modes` [rows] ADDS, FORBIDS or IS_ONLY, `ids` and `values` what
    is added to which token [sum of counts]. `dense` is applied after them.
    """

    rows: dict[str, int]
    counts: npt.NDArray[np.int32]
    modes: npt.NDArray[np.int32]
    ids: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    dense: Sequence[DenseStep]

    def each(self) -> Iterator[tuple[str, int, Edits]]:
        """Yield request, row counted from its first, and what changes there."""
        ends = np.cumsum(self.counts)
        index = 0
        for request_id, rows in self.rows.items():
            for offset in range(rows):
                part = slice(ends[index] - self.counts[index], ends[index])
                if self.counts[index]:
                    is_only = bool(self.modes[index] == IS_ONLY)
                    yield request_id, offset, Edits(self.ids[part], self.values[part], is_only)
                index += 1


def step_edits(prepared: dict[str, Prepared]) -> StepEdits | None:
    """Return what requests' processors change together; None: nothing."""
    edits = [row or _NOTHING for each in prepared.values() for row in each.rows]
    dense = _dense(prepared)
    counts = np.array([len(each.ids) for each in edits], np.int32)
    if not counts.any() and not dense:
        return None
    values = np.concatenate([each.values for each in edits], dtype=np.float32, casting="unsafe")
    modes = np.full(len(edits), ADDS, np.int32)
    modes[np.repeat(np.arange(len(edits)), counts)[values == FORBIDDEN]] = FORBIDS
    modes[[each.is_only for each in edits]] = IS_ONLY
    return StepEdits(
        rows={request_id: len(each.rows) for request_id, each in prepared.items()},
        counts=counts,
        modes=modes,
        ids=np.concatenate([each.ids for each in edits], dtype=np.int32, casting="unsafe"),
        values=values,
        dense=dense,
    )


def _dense(prepared: dict[str, Prepared]) -> list[DenseStep]:
    steps: dict[int, DenseStep] = {}
    for request_id, each in prepared.items():
        for factory, rows in each.dense:
            step = steps.setdefault(id(factory), DenseStep(factory))
            for offset, result in enumerate(rows):
                if result is not None:
                    step.places.append((request_id, offset))
                    step.results.append(result)
    return [step for step in steps.values() if step.places]
