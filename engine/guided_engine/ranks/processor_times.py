"""What logits processors cost the steps of a rank: CPU time, against what each factory may take in one."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from guided_contract.config import LogitsProcessorConfig
from guided_contract.records import ProcessorTime, ProcessorTimes

_PERIOD_NS: Final = 1_000_000_000  # between two records


@dataclass(slots=True)
class _Factory:
    limit_ns: int
    is_ended: bool  # whether the sequence that took longest ends
    # In this step: what its processors took, and whose call was the longest.
    took_ns: int = 0
    longest_ns: int = 0
    longest_of: str = ""
    # Since the last record.
    steps: int = 0
    over: int = 0
    total_ns: int = 0


class StepTimes:
    """Sums what `prepare` and `accept` take, a step at a time, for the price of a clock of wall time.

    A thread that lost its core for a while is no processor's fault: of what the calls of a step took is left
    out for how long the thread had no core in the step's parts. What is between two parts, as a sequence that
    is made anew after a preemption, is no step's.

    `send` takes a record once a second, and must not block; `cpu_ns` tells this thread's CPU time.
    """

    def __init__(
        self,
        configs: Sequence[LogitsProcessorConfig],
        rank: int,
        send: Callable[[ProcessorTimes], None],
        *,
        wall_ns: Callable[[], int] = time.perf_counter_ns,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._factories = {
            config.name: _Factory(
                limit_ns=round(config.time_budget_s * 1e9),
                is_ended=config.on_over_budget == "FailRequest",
            )
            for config in configs
        }
        self._rank = rank
        self._send = send
        self._wall_ns, self._cpu_ns = wall_ns, cpu_ns
        self._began_ns: tuple[int, int] | None = None
        self._lost_ns = 0
        self._sent_ns = 0

    def begin(self) -> None:
        """Begin a part of a step."""
        if self._factories:
            self._began_ns = self._wall_ns(), self._cpu_ns()

    def add(self, request_id: str, name: str, took_ns: int) -> None:
        """Count one call of a sequence's processor."""
        if self._began_ns is None:
            return
        factory = self._factories[name]
        factory.took_ns += took_ns
        if took_ns > factory.longest_ns:
            factory.longest_ns, factory.longest_of = took_ns, request_id

    def end(self) -> None:
        """End a part of a step."""
        if self._began_ns is None:
            return
        wall_ns, cpu_ns = self._began_ns
        self._began_ns = None
        self._lost_ns += max(0, self._wall_ns() - wall_ns - (self._cpu_ns() - cpu_ns))

    def end_step(self) -> list[tuple[str, str]]:
        """End a step; return (request, processor) of the sequences that end for what theirs took in it."""
        ends = []
        lost_ns, self._lost_ns = self._lost_ns, 0
        for name, factory in self._factories.items():
            if not factory.longest_of:
                continue
            took_ns, of = max(0, factory.took_ns - lost_ns), factory.longest_of
            factory.took_ns = factory.longest_ns = 0
            factory.longest_of = ""
            factory.steps += 1
            factory.total_ns += took_ns
            if took_ns > factory.limit_ns:
                factory.over += 1
                if factory.is_ended:
                    ends.append((of, name))
        if self._factories and self._wall_ns() - self._sent_ns >= _PERIOD_NS:
            self.tell()
        return ends

    def tell(self) -> None:
        """Send what was counted since the last record."""
        self._sent_ns = self._wall_ns()
        times = []
        for name, factory in self._factories.items():
            if factory.steps:
                times.append(ProcessorTime(name, factory.steps, factory.over, factory.total_ns))
                factory.steps = factory.over = factory.total_ns = 0
        if times:
            self._send(ProcessorTimes(rank=self._rank, times=times))
