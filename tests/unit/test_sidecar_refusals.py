"""Refusals of grammars that are remembered for a while."""

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.prepare.known import Refusals

INVALID = GuidedError(ErrorCode.GRAMMAR_INVALID, "bad", path="$.a")
COSTLY = (
    ErrorCode.GRAMMAR_COMPILE_TIMEOUT,
    ErrorCode.GRAMMAR_COMPILE_CRASHED,
    ErrorCode.GRAMMAR_COMPILE_MEMORY,
    ErrorCode.GRAMMAR_SLOW,
)


def test_what_is_wrong_with_a_text_is_said_again_as_it_was() -> None:
    refusals = Refusals(10, 30)
    refusals.record("bad", INVALID)
    with pytest.raises(GuidedError) as refused:
        refusals.check("bad")
    assert (refused.value.code, refused.value.message, refused.value.path) == (INVALID.code, "bad", "$.a")
    refusals.check("good")


@pytest.mark.parametrize("code", COSTLY)
def test_what_a_grammar_costs_is_held_against_it_for_a_while(code: ErrorCode) -> None:
    now = 0.0
    refusals = Refusals(10, 30, clock=lambda: now)
    refusals.record("costly", GuidedError(code, "took too much"))
    now = 29.5
    with pytest.raises(GuidedError, match=r"took too much$") as refused:
        refusals.check("costly")
    assert refused.value.code == code
    now = 30.0
    refusals.check("costly")
    refusals.record("costly", GuidedError(code, "took too much"))
    with pytest.raises(GuidedError):
        refusals.check("costly")


def test_refusals_are_bounded_and_only_about_grammars() -> None:
    refusals = Refusals(2, 30)
    for key in "abca":
        refusals.record(key, INVALID)
    refusals.record("d", GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE))
    refusals.record("e", GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL))

    for key in "bde":
        refusals.check(key)
    for key in "ca":
        with pytest.raises(GuidedError):
            refusals.check(key)
