"""The service's own state: leases, cache, verdicts, the restart budget, turns, the ranks' agreement."""

import asyncio

import pytest

from guided_contract.config import RestartConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.budget import RestartBudget
from guided_sidecar.grammar.cache import Entry, GrammarCache, Verdicts
from guided_sidecar.grammar.jobs import Done
from guided_sidecar.grammar.lanes import Lanes

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


def test_a_certain_verdict_holds_at_once_and_an_uncertain_one_after_three() -> None:
    verdicts = Verdicts(most_entries=10, quarantine_after=3, quarantine_s=60)
    verdicts.record("bad", INVALID, now_s=0)
    with pytest.raises(GuidedError, match="bad"):
        verdicts.check("bad", now_s=10**6)

    for number in range(3):
        verdicts.check("slow", now_s=number)
        verdicts.record("slow", TIMEOUT, now_s=number)
    with pytest.raises(GuidedError):
        verdicts.check("slow", now_s=61)
    verdicts.check("slow", now_s=62)
    verdicts.record("slow", TIMEOUT, now_s=62)
    verdicts.check("slow", now_s=62)


def test_failures_of_different_kinds_do_not_add_up() -> None:
    verdicts = Verdicts(most_entries=10, quarantine_after=2, quarantine_s=60)
    for error in (TIMEOUT, CRASHED, TIMEOUT):
        verdicts.record("key", error, now_s=0)
        verdicts.check("key", now_s=1)
    verdicts.record("key", TIMEOUT, now_s=0)
    verdicts.forgive("key")

    verdicts.check("key", now_s=1)


def test_verdicts_are_bounded_and_only_about_grammars() -> None:
    verdicts = Verdicts(most_entries=2, quarantine_after=1, quarantine_s=60)
    for key in "abc":
        verdicts.record(key, INVALID, now_s=0)
    verdicts.record("d", GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE), now_s=0)

    verdicts.check("a", now_s=0)
    verdicts.check("d", now_s=0)
    with pytest.raises(GuidedError):
        verdicts.check("b", now_s=0)


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
