"""What the next process of matchers is given, and what may not stop a rank whose process hangs or dies."""

import errno
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from contract.test_rank_hostile_processors import PLAIN, Hostile, config
from guided_engine.matchers import beside
from guided_engine.matchers.memory import SharedMemory
from guided_engine.processors.registry import ProcessorError
from guided_engine.processors.sequence import SequenceProcessors
from guided_engine.ranks.step import Plan
from guided_grammar.llguidance.matcher import GuidanceMatcher
from support.engine import wait_until
from support.rank import A, B, C, Rank, arrival, rows
from support.rank_apart import LETTERS, Apart, at, dies, endless, is_over

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def in_time() -> Iterator[None]:
    """Fail what waits for ever in the main thread."""

    def late(*_: Any) -> None:
        raise AssertionError("the rank's thread waits for ever")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(15)
    yield
    signal.alarm(0)


@pytest.mark.usefixtures("in_time")
def test_a_process_that_hangs_in_no_step_does_not_stop_the_rank(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guided requests wait for their turn (preempted, or in a long prompt) while others run."""
    monkeypatch.setattr(beside, "SEND", struct.pack("ll", 0, 200_000))
    rank = begin("r")
    os.kill(rank.matchers.pid, signal.SIGSTOP)
    others = {f"chatcmpl-{number:032x}": 1 for number in range(256)}
    for step in range(100):
        rank.step(computed=dict.fromkeys(others, step), scheduled=others)


def test_an_answer_that_comes_in_two_parts_is_one(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connection writes what is longer than 16 KiB in two parts; the process may lose its core in between."""
    send = Connection._send

    def slowly(self: Connection, buf: Any, *rest: Any) -> None:
        send(self, buf, *rest)
        if len(buf) == 4 and os.getpid() != rank_pid:
            time.sleep(0.2)

    rank_pid = os.getpid()
    monkeypatch.setattr(Connection, "_send", slowly)
    names = [f"{number}-{'x' * 1000}" for number in range(20)]  # or 256 of 64 characters
    rank = begin(*names, pattern="abc")
    assert rank.ended == {}
    masks = rank.next(**{name: [A] for name in names})
    assert rank.sampled(**{name: [B] for name in names}) == {}
    assert rows(masks) == [[B]] * 20


def test_what_is_remembered_is_of_requests_that_live() -> None:
    """One that generates for long, or waits after preemption, while thousands come and go."""
    rank = Rank()
    ticket = rank.load("[abc]*")
    rank.step([arrival("old", ticket)])
    for number in range(3000):
        rank.step([arrival(str(number), ticket)], finished=[str(number - 1)])
        rank.next(**{str(number): [A]})
        rank.sampled(**{str(number): [A]})
    kept = sum(map(len, rank.guide._history._outputs.values()))
    assert kept < 100


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_ends_whose_template_answers_no_more(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "FORK_S", 1.0)
    child = os.fork()
    if not child:
        try:
            rank = Apart()
            rank.step([arrival("r", rank.load(LETTERS))])
            os.kill(psutil.Process(rank.matchers.pid).ppid(), number)
            rank.kill()
            rank.next(r=[A])
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_none_outlives_the_end_of_its_rank() -> None:
    rank = Apart()
    pid = rank.matchers.pid
    template = psutil.Process(pid).ppid()
    rank.guide.close()
    wait_until(lambda: all(map(is_over, (pid, template))), 5)


def test_who_was_at_work_when_one_died_is_not_guilty_of_others(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two that follow die before they are at work for any, as for want of memory."""
    marks = SharedMemory(1, 32).at_work  # shared with processes to come

    def once() -> None:
        marks[0] += 1
        if marks[0] == 1:
            dies()

    monkeypatch.setattr(GuidanceMatcher, "_consume", at(B, once))
    rank = begin("r", "s", pattern="[abc]*")
    renew, kills = rank.matchers.renew, [True, True]

    def renewed() -> None:
        renew()
        if kills:
            kills.pop()
            rank.kill()
            wait_until(lambda: is_over(rank.matchers.pid), 5)

    monkeypatch.setattr(rank.matchers, "renew", renewed)
    masks = rank.next(r=[A], s=[B])
    assert rank.sampled(r=[A], s=[A]) == {}
    assert masks.request_ids == ["r", "s"]


def test_a_signal_without_a_name_ends_a_process_like_any_other(begin: Callable[..., Apart]) -> None:
    rank = begin("r", pattern="abc")
    os.kill(rank.matchers.pid, 40)
    assert rows(rank.next(r=[A])) == [[B]]


def test_many_tokens_to_accept_again_cost_no_request(begin: Callable[..., Apart]) -> None:
    """64 sequences that have generated 16,000 tokens each."""
    names = [str(number) for number in range(64)]
    rank = begin(*names)
    for _ in range(1):
        rank.sampled(**{name: [A, B, C, A] * 4000 for name in names})
        rank.step(computed={name: rank.known[name] - 1 for name in names}, scheduled=dict.fromkeys(names, 1))
    rank.kill()
    rank.next(**{name: [A] for name in names})
    assert rank.sampled(**{name: [A] for name in names}) == {}


def test_a_sequence_that_its_processors_ended_as_it_came_is_ended_everywhere() -> None:
    """With its process killed or not; ranks must have the same masks."""
    seen = []
    for killed in (False, True):
        rank = Apart([config("hostile", Hostile, way="create")])
        new = [arrival("r", rank.load("abc"))]
        rank.guide.begin(Plan([], new, {}, [], {"r": 3}, {}))
        if killed:
            rank.kill()
        masks = rank.guide.masks()
        seen.append(masks and rows(masks))
        rank.guide.close()
    assert seen[0] == seen[1]


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


def test_reasoning_that_has_ended_does_not_begin_again_in_the_next_process() -> None:
    """A mark in its answer is text: the grammar holds on, as it did where tokens came one by one."""
    from guided_engine.compat.runner_reasoning import EngineReasoner

    rank = Apart(reasoner=lambda _: EngineReasoner(ByWholeText()))
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
    from guided_engine.compat.runner_reasoning import EngineReasoner

    monkeypatch.setattr(beside, "CPU_S", 0.2)
    rank = Apart(reasoner=lambda _: EngineReasoner(ByWholeText(lambda tokens: C in tokens and act())))
    ticket = rank.load(LETTERS)
    rank.step([arrival(name, ticket, prompt_tokens=[1, *b"<", ord(name)]) for name in "ac"])
    assert set(rank.sampled(a=[A], c=[A])) == {"c"}
    rank.guide.close()


def test_a_parser_that_reads_many_prompts_slowly_is_no_hang() -> None:
    from guided_engine.compat.runner_reasoning import EngineReasoner

    def read(_tokens: Sequence[int]) -> None:
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass

    rank = Apart(reasoner=lambda _: EngineReasoner(ByWholeText(read)))
    ticket = rank.load(LETTERS)
    names = [f"r{number}" for number in range(32)]
    rank.step([arrival(name, ticket, prompt_tokens=[1, *b"<"]) for name in names])
    assert rank.sampled(**{name: [A] for name in names}) == {}
    rank.guide.close()


def test_what_came_after_a_grammars_end_is_accepted_again(begin: Callable[..., Apart]) -> None:
    """Where a request's own settings forbid the end of sequence, which alone is allowed then."""
    rank = begin("r", pattern="ab")
    for token in (A, B, C):
        rank.next(r=[token])
    rank.kill()
    rank.next(r=[C])
    assert rank.sampled(r=[C]) == {}


def test_long_answers_after_reasoning_are_read_again_in_time() -> None:
    """16 sequences of 5,000 tokens, each of which is read again with all that come before it."""
    from guided_engine.compat.runner_reasoning import EngineReasoner

    rank = Apart(reasoner=lambda _: EngineReasoner(ByWholeText()))
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


def test_want_of_file_descriptors_costs_no_more_than_a_retry(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    rank = begin("r")
    rank.kill()
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", none_left)
        assert rank.next(r=[A]) is None
    assert rank.sampled(r=[A]) == {"r": "sequence_matchers_lost"}


def test_a_new_request_does_not_inherit_the_end_of_one_of_its_name() -> None:
    rank = Rank([config("hostile", Hostile, way="a panic"), PLAIN])
    hostile, plain = ({"logits_processors": name} for name in ("hostile", "plain"))
    rank.step([arrival("r", None, is_guided=False, arguments=hostile)])
    rank.guide.edits()
    assert rank.sampled(r=[7]) == {"r": "sequence_processor_failed"}
    masks = rank.step([arrival("r", rank.load("abc"), arguments=plain)], finished=["r"])
    assert rows(masks) == [[A]]


def test_nor_the_end_that_ones_last_token_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as it is forgotten, and the new one arrives."""

    def fails(_self: Any, tokens: Sequence[int]) -> None:
        if B in tokens:
            raise ProcessorError(["plain"], RuntimeError("at its last token"))

    monkeypatch.setattr(SequenceProcessors, "accept", fails)
    rank = Rank([PLAIN])
    rank.step([arrival("r", None, is_guided=False)])
    rank.next(r=[A])
    rank.sampled(r=[B])
    rank.step([arrival("r", rank.load("abc"))], finished=["r"])
    assert rank.sampled(r=[A]) == {}
