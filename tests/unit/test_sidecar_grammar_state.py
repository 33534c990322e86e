"""The service's own state: leases, cache, refusals that are remembered, room for those who wait."""

from pathlib import Path
from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.prepare.known import Grammar, Known, Refusals
from guided_sidecar.grammar.worker_messages import Done
from guided_sidecar.ranks.load_barrier import LoadBarrier
from guided_sidecar.settings import Settings
from guided_sidecar.socket.sessions import Room
from support.engine import pod_config


def _keep(cache: Known, key: str, size: int = 1, leases: int = 0) -> None:
    for _ in range(leases):
        cache.lease(key)
    cache.keep(Grammar(key, Done(backend="guidance", spec="", size_bytes=size)))


def _cache(most_entries: int = 10) -> Known:
    settings = Settings(pod=pod_config(Path()), cache_entries=most_entries, cache_bytes=100)
    nothing: Any = None
    return Known(settings, 200, nothing, LoadBarrier(1, lambda *_: None), nothing)


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


def test_bytes_are_bounded_and_what_those_in_use_leave_no_room_for_is_refused() -> None:
    cache = _cache()
    for key in "abcd":
        _keep(cache, key, size=40)
    assert (_kept(cache), cache.state.size_bytes) == ("cd", 80)
    cache = _cache()
    for key in "abc":
        _keep(cache, key, size=60, leases=1)
    with pytest.raises(GuidedError) as refused:
        _keep(cache, "d", size=60, leases=1)
    assert refused.value.code == ErrorCode.GRAMMAR_STORAGE_FULL
    assert (_kept(cache), cache.state.size_bytes, cache.state.leased_bytes) == ("abc", 180, 180)


@pytest.mark.parametrize("code", ["invalid", "compile_timeout", "compile_crashed", "compile_memory", "slow"])
def test_a_refusal_is_said_again_as_it_was_if_it_is_of_costs_for_a_while(code: str) -> None:
    now = 0.0
    refusals = Refusals(10, 30, clock=lambda: now)
    refusals.record("bad", GuidedError(ErrorCode(f"grammar_{code}"), "words", path="$.a"))
    now = 29.5
    with pytest.raises(GuidedError, match=r"words$") as refused:
        refusals.check("bad")
    assert (refused.value.code, refused.value.path) == (f"grammar_{code}", "$.a")
    refusals.check("good")
    now = 30.0
    if code != "invalid":
        refusals.check("bad")


def test_refusals_are_bounded_and_only_about_grammars() -> None:
    refusals = Refusals(2, 30)
    for key in "abca":
        refusals.record(key, GuidedError(ErrorCode.GRAMMAR_INVALID))
    refusals.record("d", GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE))
    refusals.record("e", GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL))
    for key in "bde":
        refusals.check(key)
    for key in "ca":
        with pytest.raises(GuidedError):
            refusals.check(key)


def test_what_waits_is_bounded_in_bytes_and_a_request_that_is_alone_always_has_room() -> None:
    room = Room(100)
    assert room.take(60)
    assert not room.take(41)
    assert room.take(40)
    room.give(100)
    assert room.take(1000)
    assert not room.take(1)
