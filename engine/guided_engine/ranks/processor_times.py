"""What logits processors cost the steps of a rank: CPU time, and steps in which it was much."""

from collections.abc import Callable
from typing import Final

from guided_contract.records import ProcessorTime, ProcessorTimes
from guided_engine.matchers.stopwatch import Stopwatch

_BUDGET_NS: Final = 5_000_000  # of a factory in a step, for all of its sequences
_PERIOD_NS: Final = 1_000_000_000  # between two records


class StepTimes:
    """Sums what `prepare` and `accept` take, a step at a time, for the price of a clock of wall time.

    A thread that lost its core for a while is no processor's fault: of what the calls of a step took is left
    out for how long the thread had no core in the step's parts. What is between two parts, as a sequence that
    is made anew after a preemption, is no step's. Each part is one of `stopwatch`, too.

    `send` takes a record once a second, and must not block.
    """

    def __init__(self, rank: int, send: Callable[[ProcessorTimes], None], stopwatch: Stopwatch) -> None:
        self._rank = rank
        self._send = send
        self._stopwatch = stopwatch
        self._called_ns: dict[str, int] = {}  # by processor, in this step
        self._steps: dict[str, list[int]] = {}  # since the last record: nanoseconds of each step
        self._is_in_part = False
        self._lost_ns = 0
        self._sent_ns = 0

    def begin(self) -> None:
        """Begin a part of a step."""
        self._stopwatch.mark()
        self._is_in_part = True

    def add(self, name: str, took_ns: int) -> None:
        """Count one call of a sequence's processor."""
        if self._is_in_part:
            self._called_ns[name] = self._called_ns.get(name, 0) + took_ns

    def end(self) -> None:
        """End a part of a step."""
        self._is_in_part = False
        if self._called_ns:
            self._lost_ns += self._stopwatch.lost_ns()

    def end_step(self) -> None:
        """End a step; tell of those since the last record if that is a second ago."""
        for name, called_ns in self._called_ns.items():
            self._steps.setdefault(name, []).append(max(0, called_ns - self._lost_ns))
        self._called_ns, self._lost_ns = {}, 0
        if self._steps and self._stopwatch.wall_ns() - self._sent_ns >= _PERIOD_NS:
            self.tell()

    def tell(self) -> None:
        """Send what was counted since the last record."""
        self._sent_ns = self._stopwatch.wall_ns()
        times = [
            ProcessorTime(name, len(steps), sum([ns > _BUDGET_NS for ns in steps]), sum(steps))
            for name, steps in self._steps.items()
        ]
        self._steps = {}
        if times:
            self._send(ProcessorTimes(rank=self._rank, times=times))
