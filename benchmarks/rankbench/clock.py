"""The virtual GPU: a timeline of kernels that the ranks of one tensor-parallel group fill together.

Work is enqueued without waiting, as on a stream. A step's forward pass begins when the GPU is free and every
rank has launched it (its collectives need all of them); sampling begins after it, when every rank's masks are
copied. So a rank that is late with a launch or a mask leaves a gap, and gaps are what the benchmark measures.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

_SLOTS: Final = 1024  # steps kept for the slowest rank; ranks are never that far apart
_POLL_S: Final = 5e-5
_PEER_TIMEOUT_S: Final = 120.0
_FIELDS: Final = 7
_LAUNCHED, _FORWARD_S, _SAMPLING, _COPY_S, _ROWS, _DRAFT_S, _STEP = range(_FIELDS)


@dataclass(frozen=True, slots=True)
class Costs:
    """What the GPU and its driver take, in seconds; the same for all that is compared."""

    launch_s: float = 1.0e-3  # the host's work for one forward pass (slept)
    forward_s: float = 12.0e-3
    full_rows: int = 0  # tokens from which on a forward pass takes longer, in proportion; 0: it never does
    sample_s: float = 0.5e-3
    copy_bytes_per_s: float = 20e9  # pinned host memory to the device
    mask_row_s: float = 0.2e-6  # the kernel that writes -inf: half a megabyte of logits a row

    def pass_s(self, least_s: float, tokens: int) -> float:
        """Return what a forward pass over so many tokens takes, which takes `least_s` over one."""
        return least_s * max(1.0, tokens / self.full_rows) if self.full_rows else least_s


@dataclass(slots=True)
class Step:
    """When a step's work ended, how long it was, and how long the GPU waited for masks."""

    sampled: float
    end: float
    busy_s: float
    late_mask_s: float


class Timeline:
    """One rank's view of the GPU. Times are of `time.perf_counter`, which all processes share.

    Parameters
    ----------
    shared
        A file in shared memory that all ranks open; made by the first.
    """

    def __init__(self, costs: Costs, shared: Path, rank: int, ranks: int) -> None:
        self._costs = costs
        self._rank = rank
        # [ranks, slots, fields] one writer per rank; the step's number, from 1, is written last
        if not shared.exists():
            shared.touch()
        with shared.open("r+b") as file:
            file.truncate(ranks * _SLOTS * _FIELDS * 8)
        # No np.memmap: its slices cost as much as what is measured.
        self._marks = np.asarray(np.memmap(shared, np.float64, "r+", shape=(ranks, _SLOTS, _FIELDS)))
        self._launched = 0  # steps whose forward pass this rank has enqueued
        self._resolved: list[Step] = []
        self._free = 0.0

    def launch(self, tokens: int = 1) -> int:
        """Enqueue a forward pass over so many tokens; return the step's number, from 0."""
        if self._costs.launch_s:
            time.sleep(self._costs.launch_s)
        step = self._launched
        self._launched += 1
        mark = self._marks[self._rank, step % _SLOTS]
        mark[_FORWARD_S] = self._costs.pass_s(self._costs.forward_s, tokens)
        mark[_LAUNCHED] = time.perf_counter()
        return step

    def sample(self, step: int, mask_bytes: int, mask_rows: int, draft_s: float = 0.0) -> None:
        """Enqueue the masks' copy, their kernel, sampling, and drafting that takes `draft_s`."""
        mark = self._marks[self._rank, step % _SLOTS]
        mark[_DRAFT_S] = draft_s
        mark[_COPY_S] = mask_bytes / self._costs.copy_bytes_per_s
        mark[_ROWS] = mask_rows
        mark[_SAMPLING] = time.perf_counter()
        mark[_STEP] = step + 1

    def at(self, step: int) -> Step:
        """Return a step's times; waits until all ranks have enqueued it, not until it is over."""
        while len(self._resolved) <= step:
            self._resolve(len(self._resolved))
        return self._resolved[step]

    def is_known(self, step: int) -> bool:
        """Return whether all ranks have enqueued a step and those before."""
        return step < len(self._resolved) or all(mark[_STEP] == step + 1 for mark in self._at(step))

    def _resolve(self, step: int) -> None:
        deadline = time.perf_counter() + _PEER_TIMEOUT_S
        while any(mark[_STEP] != step + 1 for mark in self._at(step)):
            if time.perf_counter() > deadline:
                raise TimeoutError(f"a rank of the virtual GPU did not enqueue step {step}")
            time.sleep(_POLL_S)
        costs, marks = self._costs, self._at(step)
        launched = max(mark[_LAUNCHED] for mark in marks)
        copied = max(mark[_SAMPLING] + mark[_COPY_S] for mark in marks)
        start = max(self._free, launched)
        forward_s = max(mark[_FORWARD_S] for mark in marks)
        forward_end = start + forward_s
        sampling = max(forward_end, copied)
        after_s = max(mark[_ROWS] for mark in marks) * costs.mask_row_s + costs.sample_s
        draft_s = max(mark[_DRAFT_S] for mark in marks)
        sampled = sampling + after_s
        end = sampled + draft_s
        made = Step(sampled, end, forward_s + after_s + draft_s, sampling - forward_end)
        self._resolved.append(made)
        self._free = end

    def _at(self, step: int) -> list[list[float]]:
        """Return each rank's fields of a step."""
        fields: list[list[float]] = self._marks[:, step % _SLOTS].tolist()
        return fields


class Event:
    """What a CUDA event offers to a runner: a point in the GPU's time that can be waited for."""

    def __init__(self, timeline: Timeline, step: int, *, drafted: bool = False) -> None:
        self._timeline = timeline
        self._step = step
        self._drafted = drafted

    def query(self) -> bool:
        """Return whether that point has been reached, as far as this rank knows."""
        if not self._timeline.is_known(self._step):
            return False
        step = self._timeline.at(self._step)
        return time.perf_counter() >= (step.end if self._drafted else step.sampled)

    def synchronize(self) -> None:
        """Sleep until that point."""
        step = self._timeline.at(self._step)
        left_s = (step.end if self._drafted else step.sampled) - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)
