"""The service's own state: leases, cache."""

from pathlib import Path
from typing import Any

import pytest

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
