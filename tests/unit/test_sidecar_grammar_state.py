"""The service's own state: leases, cache, verdicts, the restart budget, turns, the ranks' agreement."""

import asyncio
from collections.abc import Callable

import pytest

from guided_contract.config import RestartConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.budget import RestartBudget
from guided_sidecar.grammar.cache import Entry, GrammarCache
from guided_sidecar.grammar.jobs import Done
from guided_sidecar.grammar.lanes import Lanes
from guided_sidecar.grammar.verdicts import Quarantine, Verdicts

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


def _quarantine(clock: Callable[[], float] = lambda: 0.0, most_entries: int = 10) -> Quarantine:
    return Quarantine(most_entries, after=3, first_s=30, most_s=100, clock=clock)


def test_a_certain_verdict_holds_at_once() -> None:
    verdicts = Verdicts(10, _quarantine())
    verdicts.record("bad", INVALID)
    with pytest.raises(GuidedError, match="bad"):
        verdicts.check("bad")
    verdicts.check("good")


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
    with pytest.raises(GuidedError, match="it has ended 6 workers, next try in 100 s") as refused:
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
    verdicts = Verdicts(2, quarantine)
    for _ in range(3):
        verdicts.record("killer", TIMEOUT)
    for key in "abcdef":
        verdicts.record(key, TIMEOUT)
        verdicts.record(key, INVALID)
    with pytest.raises(GuidedError):
        verdicts.check("killer")
    assert len(quarantine) == 1


def test_verdicts_are_bounded_and_only_about_grammars() -> None:
    verdicts = Verdicts(2, _quarantine())
    for key in "abc":
        verdicts.record(key, INVALID)
    verdicts.record("d", GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE))
    for _ in range(3):
        verdicts.record("e", GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL))

    for key in "ade":
        verdicts.check(key)
    with pytest.raises(GuidedError):
        verdicts.check("b")


def test_the_delay_doubles_until_a_worker_succeeds() -> None:
    budget = RestartBudget(RestartConfig(base_delay_s=0.1, max_delay_s=0.5), clock=lambda: 0.0)
    delays = [budget.delay_s()]
    for _ in range(5):
        budget.record_death()
        delays.append(budget.delay_s())

    assert delays == [0.0, 0.1, 0.2, 0.4, 0.5, 0.5]
    budget.record_success()
    assert budget.delay_s() == 0.0


def test_a_spent_budget_recovers_as_its_deaths_grow_old() -> None:
    now = 0.0
    budget = RestartBudget(RestartConfig(max_attempts=3, reset_after_s=10), clock=lambda: now)
    for time_s in (0.0, 1.0, 2.0):
        now = time_s
        assert budget.exhausted_for_s() == 0
        budget.record_death()

    assert budget.exhausted_for_s() == 8
    now = 10.0
    assert budget.exhausted_for_s() == 0
    budget.record_death()
    assert budget.exhausted_for_s() == 1


async def test_a_slow_turn_lets_others_by_while_its_lane_has_room() -> None:
    lanes = Lanes(width=1, slow_after_s=0.05)
    done: list[str] = []
    end = asyncio.Event()

    async def hold(name: str) -> None:
        async with lanes.turn():
            await end.wait()
        done.append(name)

    async def pass_by() -> None:
        async with lanes.turn():
            done.append("quick")

    slow = asyncio.create_task(hold("slow"))
    async with asyncio.timeout(5):
        await asyncio.sleep(0)
        await pass_by()
        second = asyncio.create_task(hold("second"))
        third = asyncio.create_task(pass_by())
        await asyncio.sleep(0.2)
        assert done == ["quick"], "the slow lane is full: the second slow turn keeps its place"
        end.set()
        await asyncio.gather(slow, second, third)
    assert sorted(done) == ["quick", "quick", "second", "slow"]
    assert lanes.fast == 0
