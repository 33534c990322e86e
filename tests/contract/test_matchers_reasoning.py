"""Reasoning where the process of a rank's matchers dies or hangs: the next one goes on with it."""

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from guided_engine.matchers import beside
from support.rank import A, B, C, arrival, rows
from support.rank_apart import LETTERS, Apart, dies, endless

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class ByWholeText:
    """As vLLM's base class, Cohere's, Kimi's and MiniMax's parsers: what the last mark of a text says.

    `read` is told of each text.
    """

    model_tokenizer = SimpleNamespace(encode=lambda *_a, **_k: [A])

    def __init__(self, read: Callable[[Sequence[int]], object] = lambda _tokens: None) -> None:
        self._read = read

    def is_reasoning_end(self, tokens: Sequence[int]) -> bool:
        self._read(tokens)
        last = next((token for token in reversed(tokens) if token in b"<>"), None)
        return last == ord(">")

    def is_reasoning_end_streaming(self, tokens: Sequence[int], _delta: Sequence[int]) -> bool:
        return self.is_reasoning_end(tokens)


def apart(read: Callable[[Sequence[int]], object] = lambda _tokens: None) -> Apart:
    """Return a rank whose model reasons."""
    from guided_engine.compat.runner_reasoning import EngineReasoner

    return Apart(reasoner=lambda _: EngineReasoner(ByWholeText(read)))


def test_reasoning_that_has_ended_does_not_begin_again_in_the_next_process() -> None:
    """A mark in its answer is text: the grammar holds on, as it did where tokens came one by one."""
    rank = apart()
    rank.step([arrival("r", rank.load("a<b"), prompt_tokens=[1, ord("<")])])
    for token, following in ((ord(">"), A), (A, ord("<")), (ord("<"), B)):
        assert rows(rank.next(r=[token])) == [[following]]
    rank.kill()
    assert rows(rank.next("r")) == [[B]]
    rank.guide.close()


@pytest.mark.parametrize("act", [dies, endless])
def test_a_parser_that_fails_at_a_prompt_ends_its_sequence_alone(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]
) -> None:
    monkeypatch.setattr(beside, "CPU_S", 0.2)
    rank = apart(lambda tokens: C in tokens and act())
    ticket = rank.load(LETTERS)
    rank.step([arrival(name, ticket, prompt_tokens=[1, *b"<", ord(name)]) for name in "ac"])
    assert set(rank.sampled(a=[A], c=[A])) == {"c"}
    rank.guide.close()


def test_a_parser_that_reads_many_prompts_slowly_is_no_hang() -> None:
    def read(_tokens: Sequence[int]) -> None:
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass

    rank = apart(read)
    ticket = rank.load(LETTERS)
    names = [f"r{number}" for number in range(32)]
    rank.step([arrival(name, ticket, prompt_tokens=[1, *b"<"]) for name in names])
    assert rank.sampled(**{name: [A] for name in names}) == {}
    rank.guide.close()


def test_long_answers_after_reasoning_are_read_again_in_time() -> None:
    """16 sequences of 5,000 tokens, each of which is read again with all that come before it."""
    rank = apart()
    names = [f"r{number}" for number in range(16)]
    ticket = rank.load("[abc]*")
    rank.step([arrival(name, ticket, prompt_tokens=[1, ord("<")]) for name in names])
    rank.next(**{name: [ord(">")] for name in names})
    for _ in range(50):
        rank.next(**{name: [A, B, C, A] * 25 for name in names})
    rank.kill()
    rank.next("r0", "r1")
    assert rank.sampled(r0=[A], r1=[A]) == {}
    rank.guide.close()
