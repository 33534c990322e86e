"""What logits processors take of a rank's steps, with clocks that are set by hand."""

from typing import Any

from guided_engine.ranks.processor_times import StepTimes
from guided_engine.ranks.stopwatch import Stopwatch

MS = 1_000_000


class Played:
    """A rank's times, by clocks that calls of processors move."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.wall, self.cpu = 10_000 * MS, 0
        stopwatch = Stopwatch(wall_ns=lambda: self.wall, cpu_ns=lambda: self.cpu)
        self.times = StepTimes(3, self.records.append, stopwatch)

    def part(self, *calls: tuple[str, int], lost: int = 0) -> None:
        """Have a part of a step with calls (processor, milliseconds), without a core for so long."""
        self.times.begin()
        for name, took in calls:
            self.wall += took * MS
            self.cpu += took * MS
            self.times.add(name, took * MS)
        self.cpu -= lost * MS
        self.times.end()

    def told(self) -> dict[str, tuple[int, int, int]]:
        """Return steps, those over budget, and milliseconds, by processor, of all records."""
        self.times.tell()
        found: dict[str, tuple[int, int, int]] = {}
        for record in self.records:
            assert record.rank == 3
            for each in record.times:
                new = each.steps, each.over_budget, each.total_ns // MS
                old = found.get(each.name, (0, 0, 0))
                found[each.name] = (old[0] + new[0], old[1] + new[1], old[2] + new[2])
        return found


def test_a_budget_is_of_all_sequences_and_both_calls() -> None:
    played = Played()
    played.part(("one", 1), ("one", 2), ("other", 1))
    played.part(("one", 1), ("one", 1))
    played.times.end_step()
    played.part(("one", 1), ("one", 3))
    played.part(("one", 2), ("one", 1))
    played.times.end_step()
    assert played.told() == {"one": (2, 1, 12), "other": (1, 0, 1)}


def test_a_thread_that_lost_its_core_is_no_processors_fault() -> None:
    played = Played()
    played.part(("one", 9), lost=6)
    played.times.end_step()
    played.part(("one", 9), lost=10)
    played.times.end_step()
    assert played.told() == {"one": (2, 0, 3)}
