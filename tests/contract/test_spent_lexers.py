"""Matchers of one llguidance grammar share its lexer: one text that spends it ends no other sequence."""

import random
import threading
import time
from typing import Any

import llguidance
import numpy as np
import pytest
from llguidance.numpy import fill_next_token_bitmask

from guided_grammar.llguidance.matcher import GuidanceMatcher
from guided_grammar.llguidance.prototype import Allowance, Prototype
from guided_grammar.matching import SpentError
from support.rank import EOS, TOKENIZER, VOCAB, A, B, C, Rank, allowed, arrival

# The lexer knows how often the letter stood where it could have been in any of the inner groups.
HUNGRY = "x?(a{0,100}){0,100}z"
GRAMMAR = llguidance.LLMatcher.grammar_from_regex(HUNGRY)
LETTERS = "abcdefghijklmnopqrstuvwx"
MOST = 200  # letters; it gives up before


def made() -> Any:
    return llguidance.LLMatcher(TOKENIZER, GRAMMAR, log_level=0)


def judged(text: bytes, grammar: str = GRAMMAR) -> list[int]:
    """Return what a matcher allows that shares nothing."""
    matcher = llguidance.LLMatcher(TOKENIZER, grammar, log_level=0)
    mask = np.zeros((1, (VOCAB + 31) // 32), dtype=np.int32)
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


# Alternatives with gaps: each place has states of its own, so that 12,000 letters in all texts spend a lexer.
GAPS = "|".join(f".*{first}.{{12}}{last}.*" for first, last in zip(LETTERS[::2], LETTERS[1::2], strict=True))


@pytest.mark.parametrize("seed", [1, 2])
def test_what_all_texts_together_spend_ends_nobody(tmp_path: Any, seed: int) -> None:
    """The second lexer is spent sooner than the first, as it has all texts at once; then each has its own."""
    chooser = random.Random(seed)
    rank = Rank(tmp_path)
    ticket = rank.load(GAPS)
    texts = {f"s{number}": bytearray() for number in range(8)}
    rank.step([arrival(name, ticket) for name in texts])
    grammar = llguidance.LLMatcher.grammar_from_regex(GAPS)
    matchers = [rank.guide._sequences[name].matcher for name in texts]
    while min(matcher.renewals for matcher in matchers if isinstance(matcher, GuidanceMatcher)) < 2:
        drawn = {name: ord(chooser.choice(LETTERS[::2])) for name in texts}
        for name, letter in drawn.items():
            texts[name].append(letter)
        assert rank.sampled(**{name: [letter] for name, letter in drawn.items()}) == {}, seed
        masks = rank.step(
            computed={n: 3 + len(t) for n, t in texts.items()}, scheduled=dict.fromkeys(texts, 1)
        )
    assert masks is not None
    for row, name in enumerate(masks.request_ids):
        assert allowed(masks, row) == judged(bytes(texts[name]), grammar)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def spent(prototype: Prototype) -> int:
    """Return how often a matcher was brought to another lexer before it had spent all that it may."""
    matcher = GuidanceMatcher(prototype, EOS)
    with pytest.raises(SpentError):
        all(matcher.accept([A]) for _ in range(MOST))
    return matcher.renewals


def test_sequences_that_go_on_spending_lexers_hold_a_rank_up_for_a_bounded_time() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    prototype = Prototype(made, allowance)
    assert spent(prototype) == 2
    while spent(prototype):
        assert allowance.left_s > -allowance.MOST_S
    clock.now += 2 * allowance.MOST_S / 0.05
    assert allowance.left_s == allowance.MOST_S
    assert GuidanceMatcher(prototype, EOS).accept([A])


def test_a_step_does_not_wait_for_a_grammar_that_takes_long_to_make() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def make() -> Any:
        if begun.is_set():
            assert go_on.wait(60)
        begun.set()
        return made()

    prototype = Prototype(make, Allowance(Clock()))
    assert spent(prototype) == 0
    begin = time.thread_time()
    assert spent(prototype) == 0
    assert time.thread_time() - begin < 1
    go_on.set()
    assert prototype._is_made.wait(60)
    assert GuidanceMatcher(prototype, EOS).accept([A])


def test_what_another_text_spent_does_not_make_a_sequence_slow(tmp_path: Any) -> None:
    """To take 20,000 tokens again takes longer than a token may."""
    rank = Rank(tmp_path)
    ticket = rank.load("(" + HUNGRY + "|y[bc]*)")
    rank.step([arrival("long", ticket), arrival("greedy", ticket)])
    rank.sampled(long=[ord("y"), *[B] * 5_000], greedy=[A])
    failed: dict[str, str] = {}
    count = 1
    while not failed:
        assert rank.step(computed={"long": 5_004, "greedy": 3 + count}, scheduled={"long": 1, "greedy": 1})
        failed = rank.sampled(greedy=[A])
        count += 1
    assert failed == {"greedy": "sequence_slow"}
    assert rank.sampled(long=[B] * 2) == {}
    masks = rank.step(computed={"long": 5_004}, scheduled={"long": 1}, finished={"greedy": "abort"})
    assert allowed(masks) == [B, C, EOS]
