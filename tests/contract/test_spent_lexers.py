"""Matchers of one llguidance grammar share its lexer: one text that spends it ends no other sequence."""

import threading
from typing import Any

import llguidance
import numpy as np
import pytest
from llguidance.numpy import fill_next_token_bitmask

from guided_grammar.llguidance.matcher import GuidanceMatcher
from guided_grammar.llguidance.prototype import Prototype
from guided_grammar.matching import SpentError
from support.rank import EOS, TOKENIZER, VOCAB, A, B, Rank, allowed, arrival

# The lexer knows how often the letter stood where it could have been in any of the inner groups.
HUNGRY = "x?(a{0,100}){0,100}z"
GRAMMAR = llguidance.LLMatcher.grammar_from_regex(HUNGRY)
MOST = 200  # letters; it gives up before


def made() -> Any:
    return llguidance.LLMatcher(TOKENIZER, GRAMMAR, log_level=0)


def judged(text: bytes) -> list[int]:
    """Return what a matcher allows that shares nothing."""
    matcher, mask = made(), np.zeros((1, (VOCAB + 31) // 32), dtype=np.int32)
    assert matcher.consume_tokens(list(text))
    fill_next_token_bitmask(matcher, mask, 0)
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def test_the_library_still_spends_what_is_shared() -> None:
    """Where this fails, llguidance was mended and our own way round it can go."""
    prototype = made()
    greedy, innocent = prototype.deep_copy(), prototype.deep_copy()
    assert innocent.consume_tokens(list(b"a"))
    assert not all(greedy.consume_tokens([A]) for _ in range(MOST))
    assert not innocent.consume_tokens([A])
    assert innocent.get_error().startswith("lexer error")
    assert made().consume_tokens(list(b"aa"))


@pytest.mark.parametrize("drafts", [[], [A, A], [A, B]], ids=["alone", "with drafts", "with a refused draft"])
def test_who_spends_a_lexer_ends_alone(tmp_path: Any, drafts: list[int]) -> None:
    rank = Rank(tmp_path)
    ticket = rank.load(HUNGRY)
    rank.step([arrival("greedy", ticket), arrival("innocent", ticket)])
    texts = {"greedy": [A], "innocent": [ord("x")]}
    failed = rank.sampled(**texts)
    while not failed:
        assert len(texts["greedy"]) < MOST
        counts = {name: 3 + len(text) for name, text in texts.items()}
        masks = rank.step(
            computed=counts,
            scheduled={"greedy": 1, "innocent": 1 + len(drafts)},
            drafts={"innocent": drafts},
        )
        assert masks is not None
        row = masks.request_ids.index("innocent")
        assert allowed(masks, row) == judged(bytes(texts["innocent"]))
        if drafts[:1] == [A]:
            assert allowed(masks, row + 1) == judged(bytes([*texts["innocent"], A]))
        texts["greedy"].append(A)
        failed = rank.sampled(greedy=[A], innocent=[])

    assert failed == {"greedy": "sequence_slow"}
    # Who comes later under the same key is served, too, and so is who was there.
    masks = rank.step(
        [arrival("late", ticket)],
        computed={"innocent": 4},
        scheduled={"innocent": 1},
        finished={"greedy": "abort"},
    )
    assert masks is not None
    rows = {name: allowed(masks, row) for row, name in enumerate(masks.request_ids)}
    assert rows == {"innocent": judged(b"x"), "late": judged(b"")}
    assert rank.sampled(innocent=[ord("z")], late=[ord("z")]) == {}
    masks = rank.step(computed={"innocent": 5, "late": 4}, scheduled={"innocent": 1, "late": 1})
    assert allowed(masks, 0) == allowed(masks, 1) == [EOS]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def spend(prototype: Prototype) -> None:
    matcher = GuidanceMatcher(prototype, EOS)
    with pytest.raises(SpentError):
        all(matcher.accept([A]) for _ in range(MOST))


def test_a_grammar_whose_texts_go_on_spending_it_is_not_made_anew_for_ever() -> None:
    clock = Clock()
    times = []

    def counted() -> Any:
        times.append(clock.now)
        return made()

    prototype = Prototype(counted, clock)
    for _ in range(20):
        spend(prototype)
    assert len(times) == 5
    with pytest.raises(SpentError):
        GuidanceMatcher(prototype, EOS).accept([A])
    clock.now += 10
    assert GuidanceMatcher(prototype, EOS).accept([A])
    assert len(times) == 6


def test_a_step_does_not_wait_for_a_grammar_that_takes_long_to_make() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def make() -> Any:
        if begun.is_set():
            assert go_on.wait(60)
        begun.set()
        return made()

    prototype = Prototype(make)
    spend(prototype)
    with pytest.raises(SpentError):
        GuidanceMatcher(prototype, EOS).accept([A])
    go_on.set()
    assert prototype._is_done.wait(60)
    assert GuidanceMatcher(prototype, EOS).accept([A])
