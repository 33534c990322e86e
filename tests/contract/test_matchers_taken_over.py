"""What the next process of matchers is given, and what may not stop a rank whose process hangs or dies."""

import errno
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
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
from support.rank_apart import LETTERS, Apart, at, dies, is_over

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


def test_a_long_text_that_is_followed_again_is_not_slow(begin: Callable[..., Apart]) -> None:
    """As above, where drafts bring what ends it and what comes behind together."""
    rank = begin("r", pattern="a*b")
    rank.sampled(r=[A] * 30_000)
    rank.step(computed={"r": rank.known["r"] - 1}, scheduled={"r": 1})
    rank.next(r=[B, C])
    assert rank.sampled(r=[C]) == {}


def test_what_came_after_a_grammars_end_is_accepted_again(begin: Callable[..., Apart]) -> None:
    """Where a request's own settings forbid the end of sequence, which alone is allowed then."""
    rank = begin("r", pattern="ab")
    for token in (A, B, C):
        rank.next(r=[token])
    rank.kill()
    rank.next(r=[C])
    assert rank.sampled(r=[C]) == {}


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
