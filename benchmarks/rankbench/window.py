"""The part of a run that is measured: so many steps of the full batch, in the steady state."""

import cProfile
import time
from dataclasses import dataclass
from typing import Final

import msgspec

from rankbench.clock import Timeline

LEAD_IN: Final = 4  # steps of the full batch before it: the pipeline fills


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank saw in a window; `thread_s` is the CPU of the thread that launches kernels."""

    steps: int
    tokens: int
    wall_s: float
    busy_s: float
    late_mask_s: float
    thread_s: float
    lost_drafts: int
    forbidden: int


@dataclass(slots=True)
class Window:
    """Counts while it is open. `batch` requests must be decoding; any other step is not counted.

    `thread_ns` is the CPU of the thread that samples, less that of the benchmark's own questions.
    `profile` names a file for cProfile's statistics of the thread that samples; without it none are made.
    """

    batch: int
    steps: int
    profile: str = ""
    steps_seen: int = 0
    tokens: int = 0
    lost_drafts: int = 0
    forbidden: int = 0
    thread_ns: int = 0
    _profiler: cProfile.Profile | None = None
    _first: int = 0
    _last: int = 0

    @property
    def is_open(self) -> bool:
        """Tell whether the current step counts."""
        return LEAD_IN < self.steps_seen <= LEAD_IN + self.steps

    def step(self, number: int, requests: int, tokens: int, *, has_prefill: bool) -> None:
        """Take note of a step that was sampled."""
        if has_prefill or requests != self.batch or self.steps_seen > LEAD_IN + self.steps:
            return
        self.steps_seen += 1
        if self.steps_seen == LEAD_IN:
            self._first = number
            self.thread_ns = -time.thread_time_ns()
            if self.profile:
                self._profiler = cProfile.Profile(time.perf_counter)
                self._profiler.enable()
        if self.is_open:
            self.tokens += tokens
            self._last = number
            if self.steps_seen == LEAD_IN + self.steps:
                self.thread_ns += time.thread_time_ns()
        if self._profiler is not None and self.steps_seen == LEAD_IN + self.steps:
            self._profiler.disable()
            self._profiler.dump_stats(self.profile)
            self._profiler = None

    def report(self, timeline: Timeline) -> Report:
        """Return the figures; the wall time is from the end of the step before to the end of the last."""
        measured = [timeline.at(number) for number in range(self._first + 1, self._last + 1)]
        complete = self.steps_seen >= LEAD_IN + self.steps
        return Report(
            steps=len(measured) if complete else 0,
            tokens=self.tokens,
            wall_s=timeline.at(self._last).end - timeline.at(self._first).end if complete else 0.0,
            busy_s=sum(step.busy_s for step in measured),
            late_mask_s=sum(step.late_mask_s for step in measured),
            thread_s=self.thread_ns / 1e9,
            lost_drafts=self.lost_drafts,
            forbidden=self.forbidden,
        )
