"""Refusals of grammars that are remembered: those that are certain, and those that last for a while."""

from collections.abc import Callable

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.prepare.quarantine import Quarantine, Refusals

INVALID = GuidedError(ErrorCode.GRAMMAR_INVALID, "bad", path="$.a")
TIMEOUT = GuidedError(ErrorCode.GRAMMAR_COMPILE_TIMEOUT)
SLOW = GuidedError(ErrorCode.GRAMMAR_SLOW, "took a rank too long")
CRASHED = GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED)


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


def test_a_grammar_that_was_slow_on_a_rank_is_refused_at_once_and_longer_each_time() -> None:
    now = 0.0
    quarantine = _quarantine(lambda: now)
    for term_s in (30, 60, 100, 100):
        quarantine.hold("key", SLOW)
        quarantine.hold("key", SLOW)  # the other rank's word
        with pytest.raises(
            GuidedError, match=f"^grammar_slow: .* long; it is refused for another {term_s} s$"
        ):
            quarantine.check("key")
        now += term_s
        quarantine.check("key")
        quarantine.forgive("key")  # that it compiles says nothing of how slow it is
    now += 100
    quarantine.check("key")
    quarantine.hold("key", SLOW)
    assert [(each.killed, each.seconds) for each in quarantine.shown()] == [(0, 30)]
