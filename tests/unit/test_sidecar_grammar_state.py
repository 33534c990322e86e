"""The service's own state: leases, cache, refusals, the restart budget, slots, the ranks' agreement."""

import asyncio
from collections.abc import Callable

import pytest

from guided_contract.config import RestartConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.pool.fair_queue import FairQueue
from guided_sidecar.grammar.pool.restart_budget import RestartBudget
from guided_sidecar.grammar.prepare.cache import Entry, GrammarCache
from guided_sidecar.grammar.prepare.quarantine import Quarantine, Refusals
from guided_sidecar.grammar.worker_messages import Done
from support.played import played

INVALID = GuidedError(ErrorCode.GRAMMAR_INVALID, "bad", path="$.a")
TIMEOUT = GuidedError(ErrorCode.GRAMMAR_COMPILE_TIMEOUT)
CRASHED = GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED)


def _entry(key: str, size: int = 1, leases: int = 0) -> Entry:
    return Entry(key, Done(backend="guidance", spec="", size_bytes=size), leases)


def test_the_longest_unused_grammar_goes_first_but_never_a_leased_one() -> None:
    cache = GrammarCache(most_entries=2, most_bytes=100)
    for key in "abc":
        cache.add(_entry(key, leases=1 if key == "a" else 0))
    cache.get("b")

    assert [entry.key for entry in cache.evict()] == ["c"]
    assert cache.evict() == []
    assert cache.get("a") is not None


def test_bytes_are_bounded_too() -> None:
    cache = GrammarCache(most_entries=10, most_bytes=100)
    for number in range(5):
        cache.add(_entry(f"{number}", size=40))

    assert [entry.key for entry in cache.evict()] == ["0", "1", "2"]
    cache.add(_entry("4", size=10))
    assert cache.evict() == []


def _slow() -> GuidedError:
    return GuidedError(ErrorCode.GRAMMAR_SLOW, "took a rank too long")


def _quarantine(clock: Callable[[], float] = lambda: 0.0, most_entries: int = 10) -> Quarantine:
    return Quarantine(most_entries, after=3, first_s=30, most_s=100, clock=clock)


def test_a_certain_verdict_holds_at_once() -> None:
    refusals = Refusals(10, _quarantine())
    refusals.record("bad", INVALID)
    with pytest.raises(GuidedError, match="bad"):
        refusals.check("bad")
    refusals.check("good")


def test_a_grammar_that_kills_workers_is_refused_for_a_while_that_grows() -> None:
    now = 0.0
    quarantine = _quarantine(lambda: now)

    def refused_for_s() -> float:
        nonlocal now
        begin = now
        while True:
            try:
                quarantine.check("slow")
            except GuidedError:
                now += 1
            else:
                return now - begin

    waits = []
    for _ in range(6):
        waits.append(refused_for_s())
        quarantine.record("slow", TIMEOUT)
    assert waits == [0, 0, 0, 30, 60, 100]
    assert len(quarantine) == 1
    with pytest.raises(
        GuidedError, match="it has killed 6 grammar workers and is refused for another 100 s"
    ) as refused:
        quarantine.check("slow")
    assert refused.value.code == ErrorCode.GRAMMAR_COMPILE_TIMEOUT


def test_a_crash_counts_for_the_two_workers_that_it_cost() -> None:
    quarantine = _quarantine()
    quarantine.record("key", CRASHED)
    quarantine.check("key")
    quarantine.record("key", TIMEOUT)
    with pytest.raises(GuidedError):
        quarantine.check("key")
    assert [(each.key, each.killed, each.seconds) for each in quarantine.shown()] == [("key", 3, 30)]

    quarantine.forgive("key")
    quarantine.check("key")
    assert not quarantine.shown()


def test_a_grammar_that_was_long_at_peace_begins_anew() -> None:
    now = 0.0
    quarantine = _quarantine(lambda: now)
    for _ in range(3):
        quarantine.record("key", TIMEOUT)
    now = 131
    quarantine.check("key")
    for _ in range(2):
        quarantine.record("key", TIMEOUT)
        quarantine.check("key")


def test_no_flood_of_other_grammars_ends_a_quarantine() -> None:
    quarantine = _quarantine(most_entries=2)
    refusals = Refusals(2, quarantine)
    for _ in range(3):
        refusals.record("killer", TIMEOUT)
    for key in "abcdef":
        refusals.record(key, TIMEOUT)
        refusals.record(key, INVALID)
    with pytest.raises(GuidedError):
        refusals.check("killer")
    assert len(quarantine) == 1


def test_refusals_are_bounded_and_only_about_grammars() -> None:
    refusals = Refusals(2, _quarantine())
    for key in "abc":
        refusals.record(key, INVALID)
    refusals.record("d", GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE))
    for _ in range(3):
        refusals.record("e", GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL))

    for key in "ade":
        refusals.check(key)
    with pytest.raises(GuidedError):
        refusals.check("b")


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
    assert compiles.queue.fast == 0


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
    assert compiles.queue.fast == 0


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
    assert compiles.queue.fast == 0


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
    assert compiles.queue.fast == 0


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
    assert compiles.queue.fast == 0


def test_a_grammar_that_was_slow_on_a_rank_is_refused_at_once_and_longer_each_time() -> None:
    now = 0.0
    quarantine = _quarantine(lambda: now)
    for term_s in (30, 60, 100, 100):
        quarantine.hold("key", _slow())
        quarantine.hold("key", _slow())  # the other rank's word
        with pytest.raises(
            GuidedError, match=f"^grammar_slow: .* long; it is refused for another {term_s} s$"
        ):
            quarantine.check("key")
        now += term_s
        quarantine.check("key")
        quarantine.forgive("key")  # that it compiles says nothing of how slow it is
    now += 100
    quarantine.check("key")
    quarantine.hold("key", _slow())
    assert [(each.killed, each.seconds) for each in quarantine.shown()] == [(0, 30)]
