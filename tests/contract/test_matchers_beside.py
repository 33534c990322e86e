"""The process of a rank's matchers: it may die or hang at any moment, and nobody but who kills it notices."""

import random
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from guided_contract.wire import Ticket
from guided_engine.matchers import beside
from guided_engine.matchers.messages import Begin, Sampled, Tokens
from guided_grammar.llguidance.matcher import GuidanceFiller, GuidanceMatcher
from support import rank as ranks
from support.engine import wait_until
from support.rank import EOS, A, B, C, Rank, acceptable, arrival, forbidden, rows
from support.rank_apart import LETTERS, Apart, at, dies, endless, is_over


def test_sequences_go_on_where_one_died(begin: Callable[..., Apart]) -> None:
    """At any moment of a step, with all that was accepted, and what had not been read by then."""
    rank = begin("r", "s", pattern="abcabc")
    for token, following in ((A, B), (B, C), (C, A)):
        rank.kill()
        assert rows(rank.next(r=[token], s=[token])) == [[following]] * 2
    assert (rank.ended, rank.renewed) == ({}, 3)


def test_one_that_came_back_after_preemption_goes_on_too(begin: Callable[..., Apart]) -> None:
    rank = begin("r", pattern="abcabc")
    rank.next(r=[A])
    rank.next(r=[B])
    back = arrival("r", Ticket(key="abcabc", backend="guidance"), known_tokens=[1, 2, 3, A])  # B was dropped
    rank.step([back])
    rank.next(r=[B])
    rank.kill()
    assert rows(rank.next(r=[C])) == [[A]]


@pytest.mark.parametrize(("act", "code"), [(dies, "sequence_matcher_failed"), (endless, "sequence_slow")])
def test_who_kills_three_in_a_row_ends_alone(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any], code: str
) -> None:
    monkeypatch.setattr(beside, "CPU_S", 0.2)
    monkeypatch.setattr(GuidanceMatcher, "_consume", at(B, act))
    rank = begin("r", "s")
    masks = rank.next(r=[A], s=[B])
    assert (masks.request_ids, rank.sampled(r=[A], s=[A])) == (["r"], {"s": code})
    assert rank.next(r=[C]).request_ids == ["r"]
    # And so does who has the same grammar, for a while, before it kills another.
    rank.step([arrival("t", Ticket(key=LETTERS, backend="guidance"))])
    assert (rank.sampled(t=[A]), rank.renewed) == ({"t": code}, 3)


def test_others_of_a_grammar_that_kills_three_cost_one_each(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuidanceMatcher, "_consume", at(B, dies))
    names = [f"r{number}" for number in range(8)]
    rank = begin("s", *names)
    masks = rank.next(s=[A], **{name: [B] for name in names})
    assert (masks.request_ids, rank.renewed) == (["s"], len(names) + 2)


def test_one_that_reads_no_more_does_not_stop_its_rank(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "SEND", struct.pack("ll", 0, 200_000))
    monkeypatch.setattr(GuidanceMatcher, "_consume", at(B, endless))
    monkeypatch.setattr(beside, "CPU_S", 0.2)
    rank = begin("r", "s")
    rank.matchers.send(Sampled([Tokens(1, ["s"], B.to_bytes(8, "little"), (1).to_bytes(8, "little"))]))
    rank.matchers.send(Begin(1, 0, goes_on=True, sampling=[*map(str, range(100_000))]))
    assert rows(rank.next(r=[A], s=[A])) == [[A, B, C, EOS]] * 2


def test_who_kills_them_as_masks_are_filled_is_found(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of all are filled in one native call; those of a new process one by one."""
    fill = GuidanceFiller.fill

    def filled(self: GuidanceFiller, batch: Sequence[Any], bitmask: Any) -> None:
        if any(guided.matcher.native.is_accepting() for guided in batch):
            dies()
        fill(self, batch, bitmask)

    monkeypatch.setattr(GuidanceFiller, "fill", filled)
    rank = begin("r", "s", "t", pattern="ab|cabc")
    rank.next(r=[C], s=[A], t=[C])
    masks = rank.next(r=[A], s=[B], t=[A])
    assert (masks.request_ids, rows(masks)[0]) == (["r", "t"], [B])
    assert rank.sampled(r=[B], t=[B]) == {"s": "sequence_matcher_failed"}


def test_all_end_with_a_code_to_retry_where_none_lives(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = begin("r", "s")
    monkeypatch.setattr(rank.matchers, "renew", lambda renew=rank.matchers.renew: (renew(), rank.kill()))
    rank.kill()
    assert rank.next(r=[A], s=[A]) is None
    monkeypatch.undo()
    assert set(rank.sampled(r=[A], s=[A]).values()) == {"sequence_matchers_lost"}
    rank.step(finished=["r", "s"])
    assert rows(rank.step([arrival("u", rank.load("ab"))])) == [[A]]


@pytest.mark.parametrize("scheduled", [[B, C], [-1, -1]])
def test_none_accepts_a_draft_where_all_end_so(
    begin: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch, scheduled: list[int]
) -> None:
    """Other ranks have not ended them yet, and accept fewer."""
    rank = begin("r")
    monkeypatch.setattr(rank.matchers, "renew", lambda renew=rank.matchers.renew: (renew(), rank.kill()))
    rank.kill()
    masks = rank.next(r=[A], drafts={"r": scheduled}, learned={"r": [B, C]})
    assert (acceptable(masks), forbidden(masks), len(masks.bitmask)) == ({"r": 0}, {B}, 3)


def test_an_answer_that_nobody_fetched_is_not_taken_for_the_next(begin: Callable[..., Apart]) -> None:
    """But what ended by then has ended."""
    rank = begin("r", "s", pattern="abc")
    rank.guide.sampled(ranks.Sampled({"r": [A], "s": [C]}))
    rank.guide.settle()
    rank.guide._ask()
    assert rows(rank.next("r")) == [[B]]
    assert rank.sampled(r=[B]) == {"s": "sequence_token_rejected"}


def test_none_outlives_its_rank() -> None:
    script = (
        "import os, sys, time\n"
        "sys.path[:0] = sys.argv[1:]\n"
        "from contract.test_matchers_beside import Apart\n"
        "rank = Apart()\n"
        "print(rank.matchers.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    tests = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tests), str(tests.parent / "tools")],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        [template] = re.findall(r"^PPid:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        process.kill()
        wait_until(lambda: all(map(is_over, (pid, int(template)))), 10)


def test_kills_at_drawn_moments_change_no_mask(begin: Callable[..., Apart]) -> None:
    """Beside a rank in one process, which nobody kills: the same masks, or an end that may be retried."""
    chance = random.Random(5)
    apart, here = begin(), Rank()
    stopped = threading.Event()

    def killing() -> None:
        while not stopped.wait(chance.uniform(0.0, 0.06)):
            apart.kill()

    thread = threading.Thread(target=killing)
    pattern = "(a(b|c){3})*"
    apart.load(pattern)
    thread.start()
    compared = 0
    try:
        for number in range(30):
            new = [arrival(f"{number}-{index}", here.load(pattern)) for index in range(3)]
            seen = [
                rank.step(new, finished=[f"{number - 1}-{i}" for i in range(3)]) for rank in (here, apart)
            ]
            for _ in range(12):
                assert seen[1] is None or rows(seen[0]) == rows(seen[1])
                compared += seen[1] is not None
                tokens = {
                    one.request_id: [chance.choice(allowed)]
                    for one, allowed in zip(new, rows(seen[0]), strict=True)
                    if EOS not in allowed or allowed.remove(EOS) is None
                }
                seen = [rank.next(**tokens) for rank in (here, apart)]
                if apart.ended:
                    break
            assert set(apart.ended.values()) <= {"sequence_matchers_lost"}
            here.sampled(), apart.sampled()
            apart.ended.clear()
    finally:
        stopped.set()
        thread.join()
    assert compared > 300


def test_thousands_of_sequences_leave_nothing(begin: Callable[..., Apart]) -> None:
    def resident_kib() -> int:
        status = Path(f"/proc/{rank.matchers.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    rank = begin()
    ticket = rank.load(LETTERS)
    sizes = []
    for number in range(3000):
        rank.step([arrival(str(number), ticket)], finished=[str(number - 1)])
        rank.next(**{str(number): [A]})
        rank.sampled(**{str(number): [EOS]})
        if number % 1000 == 999:
            sizes.append(resident_kib())
    assert sizes[-1] - sizes[0] < 1024
    assert len(rank.guide._ours) == len(rank.guide._history._outputs) == 1
