"""The service's own state: leases, cache, the restart budget, slots, the ranks' agreement."""

import asyncio
from pathlib import Path

import pytest

from guided_contract.config import RestartConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.pool.fair_queue import FairQueue
from guided_sidecar.grammar.pool.restart_budget import RestartBudget
from guided_sidecar.grammar.prepare.cache import Entry, GrammarCache
from guided_sidecar.grammar.worker_messages import Done
from guided_sidecar.ranks.load_barrier import Rendezvous
from support.played import played


def _entry(key: str, size: int = 1, leases: int = 0) -> Entry:
    return Entry(key, Done(backend="guidance", spec="", size_bytes=size), leases)


def _cache(most_entries: int = 10, room_bytes: int = 200) -> GrammarCache:
    return GrammarCache(most_entries, 100, room_bytes, Path(), Rendezvous(1, lambda *_: None))


def _kept(cache: GrammarCache) -> str:
    return "".join(key for key in "abcde" if cache.get(key))


def test_the_longest_unused_grammar_goes_first_but_never_a_leased_one() -> None:
    cache = _cache(most_entries=2)
    for key in "abc":
        cache.land(_entry(key, leases=1 if key != "b" else 0))
    assert (_kept(cache), cache.evictions) == ("ac", 1)
    cache.land(_entry("d", leases=1))
    assert _kept(cache) == "acd"
    cache.release("a")
    cache.release("a")
    assert _kept(cache) == "cd"


def test_bytes_are_bounded_too() -> None:
    cache = _cache()
    for key in "abcd":
        cache.land(_entry(key, size=40))
    assert (_kept(cache), cache.size_bytes) == ("cd", 80)
    cache.land(_entry("e", size=10))
    assert _kept(cache) == "cde"


def test_what_those_in_use_leave_no_room_for_is_refused() -> None:
    cache = _cache()
    for key in "abc":
        cache.land(_entry(key, size=60, leases=1))
    with pytest.raises(GuidedError) as refused:
        cache.land(_entry("d", size=60, leases=1))
    assert refused.value.code == ErrorCode.GRAMMAR_STORAGE_FULL
    assert (_kept(cache), cache.size_bytes, cache.leased_bytes) == ("abc", 180, 180)


def test_the_delay_doubles_until_a_worker_succeeds() -> None:
    budget = RestartBudget(RestartConfig(base_delay_s=0.1, max_delay_s=0.5), clock=lambda: 0.0)
    delays = [budget.delay_s()]
    for _ in range(5):
        budget.record_death()
        delays.append(budget.delay_s())

    assert delays == [0.0, 0.1, 0.2, 0.4, 0.5, 0.5]
    budget.record_success()
    assert budget.delay_s() == 0.0


def test_a_spent_budget_is_whole_again_after_a_time_without_a_death() -> None:
    now = 0.0
    budget = RestartBudget(RestartConfig(max_attempts=3, reset_after_s=10), clock=lambda: now)
    for time_s in (0.0, 1.0, 2.0):
        now = time_s
        assert budget.exhausted_for_s() == 0
        budget.record_death()

    assert budget.exhausted_for_s() == 10
    now = 11.0
    assert budget.exhausted_for_s() == 1
    now = 12.0
    assert budget.exhausted_for_s() == 0
    assert budget.delay_s() == 0
    for _ in range(2):
        budget.record_death()
        assert budget.exhausted_for_s() == 0
    budget.record_death()
    assert budget.exhausted_for_s() == 10


def test_deaths_far_apart_spend_no_budget() -> None:
    now = 0.0
    budget = RestartBudget(RestartConfig(max_attempts=3, reset_after_s=10), clock=lambda: now)
    for time_s in range(0, 60, 6):
        now = float(time_s)
        budget.record_death()
        assert budget.exhausted_for_s() == 0


class Compiles:
    """Slots in lanes of width 1, each held until it is ended; `log` is what became of them."""

    def __init__(self) -> None:
        self.queue = FairQueue(width=1, slow_after_s=0.05)
        self.log: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, settle_s: float = 0.0) -> None:
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._hold(name))
        await asyncio.sleep(settle_s)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await asyncio.wait_for(self._tasks[name], 5)

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])

    async def _hold(self, name: str) -> None:
        async with self.queue.slot() as slot:
            while not self._ends[name].is_set():
                self.log.append(f"{name} runs")
                lost = asyncio.Event()
                waits = [asyncio.create_task(self._ends[name].wait()), asyncio.create_task(lost.wait())]
                try:
                    with slot.watched(on_lost=lost.set, used_s=lambda: float("inf")):
                        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in waits:
                        each.cancel()
                if slot.is_lost:
                    self.log.append(f"{name} makes room")
                    await slot.again()
        self.log.append(f"{name} ended")


@played
async def test_a_slow_turn_lets_others_by() -> None:
    compiles = Compiles()
    await compiles.begin("slow", 0.2)
    await compiles.begin("quick")
    await compiles.end("quick")
    assert compiles.log == ["slow runs", "quick runs", "quick ended"]
    await compiles.end("slow")
    assert compiles.queue.fast.free == 1


@played
async def test_where_the_slow_lane_is_full_a_slow_turn_makes_room_and_begins_again() -> None:
    compiles = Compiles()
    for name in ("first", "second"):
        await compiles.begin(name, 0.2)
    assert compiles.log == ["first runs", "second runs"], "nobody waits: it may go on"
    for name in ("quick", "brief"):
        await compiles.begin(name, 0.01)
        await compiles.end(name)
    assert compiles.log[2:] == [
        "quick runs",
        "second makes room",
        "quick ended",
        "brief runs",
        "brief ended",
    ]
    await compiles.end("first")
    await asyncio.sleep(0)
    await compiles.end("second")
    assert compiles.log[-3:] == ["first ended", "second runs", "second ended"]
    assert compiles.queue.fast.free == 1


@played
async def test_who_waits_already_gets_the_place_of_a_turn_that_becomes_slow() -> None:
    compiles = Compiles()
    await compiles.begin("first", 0.2)
    await compiles.begin("second")
    await compiles.begin("quick", 0.2)
    assert compiles.log[:2] == ["first runs", "second runs"]
    assert sorted(compiles.log[2:]) == ["quick runs", "second makes room"]
    for name in ("quick", "first"):
        await compiles.end(name)
    await asyncio.sleep(0.01)
    assert compiles.log[4:] == ["quick ended", "first ended", "second runs"]
    await compiles.end("second")
    assert compiles.queue.fast.free == 1


@played
async def test_a_turn_that_outlasts_goes_on_when_the_slow_lane_has_room() -> None:
    compiles = Compiles()
    for name in ("first", "second"):
        await compiles.begin(name, 0.2)
    await compiles.end("first")
    await compiles.begin("quick", 0.01)
    assert compiles.log == ["first runs", "second runs", "first ended", "quick runs"]
    for name in ("second", "quick"):
        await compiles.end(name)
    assert compiles.queue.fast.free == 1


@played
async def test_who_gives_up_waiting_takes_no_place_along() -> None:
    compiles = Compiles()
    for name in ("first", "second"):
        await compiles.begin(name, 0.2)
    await compiles.begin("quick", 0.01)
    await compiles.begin("waits", 0.0)
    for name in ("waits", "second", "quick", "first"):  # one waits for each lane, two hold a place
        await compiles.cancel(name)
    for name in ("after", "then"):
        await compiles.begin(name, 0.2)
    assert compiles.log[-2:] == ["after runs", "then runs"]
    for name in ("after", "then"):
        await compiles.end(name)
    assert compiles.queue.fast.free == 1
