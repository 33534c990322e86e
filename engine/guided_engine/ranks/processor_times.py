"""What logits processors cost the steps of a rank: CPU time, against what each factory may take in one."""

from collections.abc import Callable, Sequence
from typing import Final

from guided_contract.config import LogitsProcessorConfig
from guided_contract.records import ProcessorTime, ProcessorTimes
from guided_engine.ranks.slowness import Stopwatch

_PERIOD_NS: Final = 1_000_000_000  # between two records


class StepTimes:
    """Sums what `prepare` and `accept` take, a step at a time, for the price of a clock of wall time.

    A thread that lost its core for a while is no processor's fault: of what the calls of a step took is left
    out for how long the thread had no core in the step's parts. What is between two parts, as a sequence that
    is made anew after a preemption, is no step's. Each part is one of `stopwatch`, too.

    `send` takes a record once a second, and must not block.
    """

    def __init__(
        self,
        configs: Sequence[LogitsProcessorConfig],
        rank: int,
        send: Callable[[ProcessorTimes], None],
        stopwatch: Stopwatch,
    ) -> None:
        self._configs = {config.name: config for config in configs}
        self._rank = rank
        self._send = send
        self._stopwatch = stopwatch
        self._calls: dict[str, list[tuple[int, str]]] = {}  # of this step: nanoseconds, request
        self._steps: dict[str, list[tuple[int, bool]]] = {}  # since the last record: nanoseconds, over budget
        self._is_in_part = False
        self._lost_ns = 0
        self._sent_ns = 0

    def begin(self) -> None:
        """Begin a part of a step."""
        self._stopwatch.mark()
        self._is_in_part = bool(self._configs)

    def add(self, request_id: str, name: str, took_ns: int) -> None:
        """Count one call of a sequence's processor."""
        if self._is_in_part:
            self._calls.setdefault(name, []).append((took_ns, request_id))

    def end(self) -> None:
        """End a part of a step."""
        if self._is_in_part:
            self._is_in_part = False
            self._lost_ns += self._stopwatch.lost_ns()

    def end_step(self) -> list[tuple[str, str]]:
        """End a step; return (request, processor) of the sequences that end for what theirs took in it."""
        ends = []
        for name, calls in self._calls.items():
            took_ns = max(0, sum([call_ns for call_ns, _ in calls]) - self._lost_ns)
            is_over = took_ns > self._configs[name].time_budget_s * 1e9
            self._steps.setdefault(name, []).append((took_ns, is_over))
            if is_over and self._configs[name].on_over_budget == "FailRequest":
                ends.append((max(calls)[1], name))
        self._calls, self._lost_ns = {}, 0
        if self._steps and self._stopwatch.wall_ns() - self._sent_ns >= _PERIOD_NS:
            self.tell()
        return ends

    def tell(self) -> None:
        """Send what was counted since the last record."""
        self._sent_ns = self._stopwatch.wall_ns()
        times = [
            ProcessorTime(name, len(steps), sum([over for _, over in steps]), sum([ns for ns, _ in steps]))
            for name, steps in self._steps.items()
        ]
        self._steps = {}
        if times:
            self._send(ProcessorTimes(rank=self._rank, times=times))
