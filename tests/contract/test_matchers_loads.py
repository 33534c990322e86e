"""Grammars of a rank's matchers: loaded once, there for each process that takes over, and forgotten."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher

from guided_contract.wire import Load, Ticket, Unload
from guided_engine.matchers import beside
from guided_engine.matchers.beside import MatchersBeside
from guided_grammar.llguidance.backend import GuidanceBackend
from support import grammars
from support.engine import wait_until
from support.rank import A, B, C, arrival, rows
from support.rank_apart import Apart, dies


def to_load(pattern: str) -> Load:
    return Load(key=pattern, backend="guidance", spec=LLMatcher.grammar_from_regex(pattern))


# A rank whose matchers load a JSON schema.
LOADS = """
import sys
sys.path[:0] = sys.argv[2:]
from llguidance import LLMatcher
from guided_contract.wire import Load
from support.rank_apart import Apart
spec = LLMatcher.grammar_from_json_schema(sys.argv[1])
print(Apart().matchers.load(Load(key="k", backend="guidance", spec=spec)))
"""


def test_there_is_a_stack_for_what_a_worker_has_proven() -> None:
    """Without a limit of the process's stack, as some sites have it, glibc gives a thread 2 MiB."""
    schema = json.dumps(grammars.references_in_a_row(2_500))
    shell = 'ulimit -s unlimited; exec "$0" -c "$@"'
    tests = Path(__file__).parents[1]
    paths = map(str, (tests, tests.parent / "tools"))
    command = ["bash", "-c", shell, sys.executable, LOADS, schema, *paths]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.startswith("Loaded(key='k', error='',")


def test_a_grammar_that_kills_it_as_it_loads_is_refused(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = GuidanceBackend.load
    bad = LLMatcher.grammar_from_regex("bad")
    monkeypatch.setattr(
        GuidanceBackend, "load", lambda self, text: dies() if text == bad else load(self, text)
    )
    rank = begin("r", pattern="abc")
    assert "ended" in rank.matchers.load(Load(key="bad", backend="guidance", spec=bad)).error
    assert rows(rank.next(r=[A])) == [[B]]
    # What was loaded before is sent again once it is asked for.
    assert rows(rank.step([arrival("s", Ticket(key="abc", backend="guidance"))])) == [[A]]


def test_one_that_another_thread_has_started_gets_the_grammars_of_those_that_arrive(
    begin: Callable[..., Apart],
) -> None:
    rank = begin("r", pattern="abc")
    rank.kill()
    rank.matchers.load(Load(key="other", backend="guidance", spec="no grammar"))  # which finds it dead
    rank.sampled(r=[A])
    arrived = [arrival("s", Ticket(key="abc", backend="guidance"))]
    assert rows(rank.step(arrived, computed={"r": 3}, scheduled={"r": 1})) == [[A], [B]]


def test_a_grammar_is_sent_again_where_its_process_died_as_it_answered(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded, but the rank's thread has renewed the process before the loading one notes that."""
    rank = begin("r", pattern="abc")
    loaded = MatchersBeside._loaded

    def late(self: MatchersBeside, load: Load) -> Any:
        answer = loaded(self, load)
        rank.kill()
        assert rows(rank.next(r=[A])) == [[B]]
        return answer

    monkeypatch.setattr(MatchersBeside, "_loaded", late)
    ticket = rank.load("cab")
    monkeypatch.undo()
    assert rows(rank.step([arrival("s", ticket)])) == [[C]]


def test_a_grammar_that_is_unloaded_is_kept_for_its_sequences(begin: Callable[..., Apart]) -> None:
    """A service that began anew loads, uses and unloads what a request of the one before has."""
    rank = begin("r", pattern="abc")
    rank.matchers.orphan()
    rank.load("abc")
    rank.matchers.unload(Unload(key="abc"))
    assert rows(rank.next(r=[A])) == [[B]]
    rank.kill()
    masks = rank.next(r=[B])
    assert rank.sampled(r=[C]) == {}
    assert rows(masks) == [[C]]


def test_a_grammar_in_use_outlives_two_services(begin: Callable[..., Apart]) -> None:
    rank = begin("r", pattern="abc")
    rank.matchers.orphan()
    rank.load("cab")
    rank.matchers.orphan()
    rank.kill()
    masks = rank.next(r=[A])
    assert rank.sampled(r=[B]) == {}
    assert rows(masks) == [[B]]


def test_a_grammar_is_sent_again_where_the_process_dropped_it(begin: Callable[..., Apart]) -> None:
    """Orphans of the rank are none of a process that took over: the next service that goes drops them."""
    rank = begin("r", pattern="abc")
    rank.load("cab")
    rank.matchers.orphan()
    rank.kill()
    assert rows(rank.next(r=[A])) == [[B]]  # gives the process abc
    rank.matchers.orphan()
    assert rows(rank.step([arrival("s", Ticket(key="cab", backend="guidance"))])) == [[C]]
    rank.matchers.orphan()
    masks = rank.step([arrival("t", Ticket(key="abc", backend="guidance"))])
    assert rank.sampled(t=[A]) == {}
    assert rows(masks) == [[A]]


def test_grammars_that_take_long_to_load_again_cost_no_request(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was loaded within its limits; all of them at once are no hang."""
    load = GuidanceBackend.load

    def slow(self: GuidanceBackend, text: str) -> Any:
        until_s = time.thread_time() + 0.3
        while time.thread_time() < until_s:
            pass
        return load(self, text)

    monkeypatch.setattr(GuidanceBackend, "load", slow)
    rank = begin()
    patterns = [f"{'a' * number}b" for number in range(1, 9)]
    rank.step([arrival(one, rank.load(one)) for one in patterns])
    rank.kill()
    rank.next(**{one: [A] for one in patterns})
    assert rank.sampled(**{one: [A] for one in patterns}) == {}


def test_keys_of_a_service_that_went_are_forgotten(begin: Callable[..., Apart]) -> None:
    rank = begin()
    for number in range(20):
        rank.load("a" * number)
        rank.matchers.orphan()
    assert len(rank.matchers._held) <= len(rank.matchers._texts) + 1


def test_a_long_grammar_is_not_sent_for_ever_to_a_process_that_hangs(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the rank is idle nobody else finds out that it hangs: no grammar is loaded any more."""
    monkeypatch.setattr(beside, "_LOAD_S", 0.5)
    monkeypatch.setattr(beside, "SEND", struct.pack("ll", 1, 0))
    rank = begin()
    os.kill(rank.matchers.pid, signal.SIGSTOP)
    thread = threading.Thread(target=rank.matchers.load, args=(to_load("ab" * 200_000),), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_load_does_not_wait_for_the_answer_of_another_process(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connection is there by the time that it has waited."""
    poll, asked = Connection.poll, threading.Event()

    def late(self: Connection, timeout: float | None = 0.0) -> bool:
        asked.set()
        found = poll(self, timeout)
        wait_until(lambda: rank.matchers._taken_up > 1, 5)  # no core for it
        return found

    rank = begin("r", pattern="abc")
    monkeypatch.setattr(Connection, "poll", late)
    os.kill(rank.matchers.pid, signal.SIGSTOP)
    thread = threading.Thread(target=rank.matchers.load, args=(to_load("cab"),), daemon=True)
    thread.start()
    assert asked.wait(5)
    rank.kill()
    rank.next(r=[A])
    thread.join(10)
    assert not thread.is_alive()
