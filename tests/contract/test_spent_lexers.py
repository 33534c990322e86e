"""Matchers of one llguidance grammar share its lexer: one text that spends it ends those of that grammar."""

import contextlib

import llguidance
import numpy as np
import pytest
from llguidance.numpy import fill_next_token_bitmask

from guided_contract.wire import Ticket
from guided_grammar.matching import SpentError
from support.rank import TOKENIZER, VOCAB, A, B, Rank, allowed, arrival
from support.waiting import eventually

# The lexer knows how often the letter stood where it could have been in any of the inner groups.
HUNGRY = "x?(a{0,100}){0,100}z"
X = ord("x")
MOST = 200  # letters; it gives up before


def judged(text: bytes, pattern: str) -> list[int]:
    """Return what a matcher allows that shares nothing."""
    grammar = llguidance.LLMatcher.grammar_from_regex(pattern)
    matcher = llguidance.LLMatcher(TOKENIZER, grammar, log_level=0)
    mask = np.zeros((1, (VOCAB + 31) // 32), dtype=np.int32)
    assert matcher.consume_tokens(list(text))
    fill_next_token_bitmask(matcher, mask, 0)
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def is_served(rank: Rank, ticket: Ticket) -> bool:
    with contextlib.suppress(SpentError):
        return rank.matchers.loaded_grammars.matcher(ticket.key, None).accept([A])
    return False


@pytest.mark.parametrize("drafts", [[], [A, A], [A, B]], ids=["alone", "with drafts", "with a refused draft"])
def test_a_spent_lexer_ends_the_sequences_of_its_grammar_alone(drafts: list[int]) -> None:
    rank = Rank()
    ticket, other = rank.load(HUNGRY), rank.load("x?a*z")
    rank.step([arrival("greedy", ticket), arrival("same", ticket), arrival("other", other)])
    failed = rank.sampled(greedy=[A], same=[X], other=[X])
    computed = {"greedy": 3, "same": 4, "other": 4}
    while not failed:
        computed["greedy"] += 1
        assert computed["greedy"] < MOST
        scheduled = {"greedy": 1, "same": 1 + len(drafts), "other": 1}
        masks = rank.step(computed=computed, scheduled=scheduled, drafts={"same": drafts})
        assert masks is not None
        assert allowed(masks, 2 + len(drafts)) == judged(b"x", "x?a*z")
        failed = rank.sampled(greedy=[A])
    assert failed == {"greedy": "sequence_slow", "same": "sequence_slow"}

    # Who comes later is served with another lexer, as soon as that is made.
    assert eventually(lambda: is_served(rank, ticket), poll_s=0.01)
