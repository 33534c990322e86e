"""The part of a run that is measured: so many steps of the full batch, in the steady state."""

import cProfile
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from rankbench.clock import Timeline
from rankbench.masks import SampledRow

LEAD_IN: Final = 4  # steps of the full batch before it: the pipeline fills


@dataclass(slots=True)
class Seen:
    """One sequence as its client sees it: cumulative outputs, each at its time."""

    tokens: int = 0
    end: tuple[str | None, int | str | None] = (None, None)
    accepted: list[int] = field(default_factory=list)  # of each step, where vLLM was asked to tell
    _first: tuple[int, float] | None = None
    _last_s: float = 0.0

    def take(self, output: Any) -> None:
        """Take note of a RequestOutput's only choice."""
        self._last_s = time.perf_counter()
        self.tokens = len(output.token_ids)
        self._first = self._first or (self.tokens, self._last_s)
        self.end = output.finish_reason, output.stop_reason
        if output.finish_reason and (metrics := output.spec_decode_metrics):
            self.accepted = list(metrics.per_step_accepted)

    @property
    def token_s(self) -> float:
        """Return the time per token behind those that came first; 0 where there were no others."""
        tokens, start = self._first or (0, 0.0)
        return (self._last_s - start) / max(1, self.tokens - tokens)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank saw in a window."""

    steps: int
    tokens: int
    wall_s: float
    busy_s: float
    late_launch_s: float
    late_mask_s: float
    shipped_bytes: int
    lost_drafts: int
    forbidden: int
    rows: list[SampledRow]
    asked: dict[int, int] = {}  # steps by the draft tokens of a sequence that the scheduler asked for


@dataclass(slots=True)
class Window:
    """Counts while it is open. `batch` requests must be decoding; any other step is not counted.

    `profile` names a file for cProfile's statistics of the thread that samples; without it none are made.
    """

    batch: int
    steps: int
    profile: str = ""
    steps_seen: int = 0
    tokens: int = 0
    shipped_bytes: int = 0
    lost_drafts: int = 0
    forbidden: int = 0
    rows: list[SampledRow] = field(default_factory=list)
    asked: Counter[int] = field(default_factory=Counter)
    _profiler: cProfile.Profile | None = None
    _first: int = 0
    _last: int = 0

    @property
    def is_open(self) -> bool:
        """Tell whether the current step counts."""
        return LEAD_IN < self.steps_seen <= LEAD_IN + self.steps

    def step(self, number: int, requests: int, tokens: int, *, has_prefill: bool, asked: int = 0) -> None:
        """Take note of a step that was sampled, and of the draft tokens that the next one is to verify."""
        if has_prefill or requests != self.batch or self.steps_seen > LEAD_IN + self.steps:
            return
        self.steps_seen += 1
        if self.steps_seen == LEAD_IN:
            self._first = number
            if self.profile:
                self._profiler = cProfile.Profile(time.perf_counter)
                self._profiler.enable()
        if self.is_open:
            self.tokens += tokens
            self.asked[asked] += 1
            self._last = number
        if self._profiler is not None and self.steps_seen == LEAD_IN + self.steps:
            self._profiler.disable()
            self._profiler.dump_stats(self.profile)
            self._profiler = None

    def ship(self, size: int) -> None:
        """Count bytes of masks from the engine core."""
        if LEAD_IN <= self.steps_seen < LEAD_IN + self.steps:
            self.shipped_bytes += size

    def report(self, timeline: Timeline) -> Report:
        """Return the figures; the wall time is from the end of the step before to the end of the last."""
        measured = [timeline.at(number) for number in range(self._first + 1, self._last + 1)]
        complete = self.steps_seen >= LEAD_IN + self.steps
        return Report(
            steps=len(measured) if complete else 0,
            tokens=self.tokens,
            wall_s=timeline.at(self._last).end - timeline.at(self._first).end if complete else 0.0,
            busy_s=sum(step.busy_s for step in measured),
            late_launch_s=sum(step.late_launch_s for step in measured),
            late_mask_s=sum(step.late_mask_s for step in measured),
            shipped_bytes=self.shipped_bytes,
            lost_drafts=self.lost_drafts,
            forbidden=self.forbidden,
            rows=self.rows,
            asked=dict(self.asked),
        )
