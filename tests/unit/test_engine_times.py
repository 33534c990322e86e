"""What processors take of a rank's steps, and how long sampling waits for masks: clocks are set by hand."""

from types import SimpleNamespace
from typing import Any

from guided_engine.matchers.stopwatch import Stopwatch
from guided_engine.ranks.mask_wait import DeviceWaits
from guided_engine.ranks.processor_times import StepTimes

MS = 1_000_000


def told(*steps: list[tuple[list[tuple[str, int]], int]]) -> dict[str, tuple[int, int, int]]:
    """Play steps; return steps, those over budget, and milliseconds, by processor, as it is told.

    A step has parts, each with calls (processor, milliseconds) and how long the thread lost its core.
    """
    records: list[Any] = []
    now = {"wall": 10_000 * MS, "cpu": 0}
    stopwatch = Stopwatch(wall_ns=lambda: now["wall"], cpu_ns=lambda: now["cpu"])
    times = StepTimes(3, records.append, stopwatch)
    for step in steps:
        for calls, lost in step:
            times.begin()
            for name, took in calls:
                now["wall"] += took * MS
                now["cpu"] += took * MS
                times.add(name, took * MS)
            now["cpu"] -= lost * MS
            times.end()
        times.end_step()
    times.tell()
    assert {record.rank for record in records} == {3}
    every = [one for record in records for one in record.times]
    found: dict[str, tuple[int, int, int]] = {}
    for name in {one.name for one in every}:
        own = [(one.steps, one.over_budget, one.total_ns // MS) for one in every if one.name == name]
        found[name] = tuple(map(sum, zip(*own, strict=True)))
    return found


def test_a_budget_is_of_all_sequences_and_both_calls() -> None:
    within = [([("one", 1), ("one", 2), ("other", 1)], 0), ([("one", 1), ("one", 1)], 0)]
    beyond = [([("one", 1), ("one", 3)], 0), ([("one", 2), ("one", 1)], 0)]
    assert told(within, beyond) == {"one": (2, 1, 12), "other": (1, 0, 1)}


def test_a_thread_that_lost_its_core_is_no_processors_fault() -> None:
    assert told([([("one", 9)], 6)], [([("one", 9)], 10)]) == {"one": (2, 0, 3)}


class Event(SimpleNamespace):
    """A mark that a device has passed once it has a moment."""

    at_ms: float | None = None

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return self.at_ms is not None

    def elapsed_time(self, later: Any) -> float:
        return float(later.at_ms - self.at_ms)


def test_on_a_device_only_its_own_waiting_counts_and_is_read_when_it_is_known() -> None:
    events: list[Event] = []
    waits = DeviceWaits(lambda: events.append(Event()) or events[-1])
    waits.begin()
    waits.end()
    waits.begin()  # the device is still busy: nobody waits for it
    assert waits.total_ns == 0
    waits.end()
    # Idle from the forward pass's end until the masks.
    for event, moment in zip(events, (10.0, 12.5, 20.0, 20.0), strict=True):
        event.at_ms = moment
    waits.begin()
    assert waits.total_ns == 2_500_000
