"""The service's own state: leases, cache, the restart budget."""

import time
from pathlib import Path
from typing import Any

import pytest
from guided_sidecar.grammar.pool.restart_budget import RestartBudget

from guided_contract.config import RestartConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.prepare.known import Grammar, Known
from guided_sidecar.grammar.worker_messages import Done
from guided_sidecar.ranks.load_barrier import LoadBarrier
from guided_sidecar.settings import Settings
from support.engine import pod_config


def _keep(cache: Known, key: str, size: int = 1, leases: int = 0) -> None:
    for _ in range(leases):
        cache.lease(key)
    cache.keep(Grammar(key, Done(backend="guidance", spec="", size_bytes=size)))


def _cache(most_entries: int = 10, room_bytes: int = 200) -> Known:
    settings = Settings(pod=pod_config(Path()), cache_entries=most_entries, cache_bytes=100)
    nothing: Any = None
    return Known(settings, room_bytes, nothing, LoadBarrier(1, lambda *_: None), nothing)


def _kept(cache: Known) -> str:
    return "".join(key for key in "abcde" if cache.kept(key))


def test_the_longest_unused_grammar_goes_first_but_never_a_leased_one() -> None:
    cache = _cache(most_entries=2)
    for key in "abc":
        _keep(cache, key, leases=1 if key != "b" else 0)
    assert (_kept(cache), cache.state.evictions) == ("ac", 1)
    _keep(cache, "d", leases=1)
    assert _kept(cache) == "acd"
    cache.release("a")
    cache.release("a")
    assert _kept(cache) == "cd"


def test_bytes_are_bounded_too() -> None:
    cache = _cache()
    for key in "abcd":
        _keep(cache, key, size=40)
    assert (_kept(cache), cache.state.size_bytes) == ("cd", 80)
    _keep(cache, "e", size=10)
    assert _kept(cache) == "cde"


def test_what_those_in_use_leave_no_room_for_is_refused() -> None:
    cache = _cache()
    for key in "abc":
        _keep(cache, key, size=60, leases=1)
    with pytest.raises(GuidedError) as refused:
        _keep(cache, "d", size=60, leases=1)
    assert refused.value.code == ErrorCode.GRAMMAR_STORAGE_FULL
    assert (_kept(cache), cache.state.size_bytes, cache.state.leased_bytes) == ("abc", 180, 180)


def test_thousands_of_requests_that_leave_at_once_hold_up_nobody() -> None:
    cache, keys = _cache(most_entries=2000), [str(number) for number in range(4000)]
    for key in keys:
        _keep(cache, key, size=0, leases=1)
    begin_s = time.process_time()
    for key in keys:
        cache.release(key)
    assert time.process_time() - begin_s < 0.2
    assert (cache.state.leases, cache.state.evictions) == (0, 2000)


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
