"""A rank's guided decoding step by step, as a runner's adapter takes it: real matchers, real logits."""

import importlib
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from guided_contract.config import LogitsProcessorConfig
from guided_contract.errors import ErrorCode
from guided_contract.records import Decode
from guided_contract.wire import Ticket
from guided_engine.compat.runner import ENDS_ATTRIBUTE, tell_faults
from guided_engine.processors.edits import apply
from guided_engine.processors.interface import (
    Edits,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)
from guided_engine.ranks import slowness
from guided_engine.ranks.step import Masks, Plan, RowFault
from guided_grammar.llguidance.matcher import GuidanceFiller, GuidanceMatcher
from support.rank import EOS, VOCAB, A, B, C, Rank, allowed, arrival


@pytest.fixture
def rank() -> Rank:
    return Rank()


class TestMasks:
    def test_follow_the_grammar_to_its_end(self, rank: Rank) -> None:
        ticket = rank.load("ab")
        assert allowed(rank.step([arrival("r", ticket)])) == [A]
        rank.sampled(r=[A])
        assert allowed(rank.step(computed={"r": 3}, scheduled={"r": 1})) == [B]
        rank.sampled(r=[B])
        assert allowed(rank.step(computed={"r": 4}, scheduled={"r": 1})) == [EOS]
        rank.sampled(r=[EOS])
        # The engine core has not seen the end yet (async): one more step, unmasked.
        assert rank.step(computed={"r": 5}, scheduled={"r": 1}) is None
        assert rank.sampled(r=[77]) == {}
        rank.step(finished=["r"])
        assert rank.guide.is_empty
        assert [record.end_reason for record in rank.records] == ["completed"]

    def test_each_sequence_has_its_own_state_under_one_key(self, rank: Rank) -> None:
        ticket = rank.load("a[bc]")
        rank.step([arrival("r", ticket), arrival("s", ticket)])
        rank.sampled(r=[A], s=[A])
        rank.step(computed={"r": 3, "s": 3}, scheduled={"r": 1, "s": 1})
        rank.sampled(r=[B], s=[C])
        masks = rank.step(computed={"r": 4, "s": 4}, scheduled={"r": 1, "s": 1})
        assert masks is not None
        assert masks.request_ids == ["r", "s"]
        assert allowed(masks, 0) == allowed(masks, 1) == [EOS]
        assert rank.guide.ends() == []

    def test_a_prefill_chunk_is_not_masked(self, rank: Rank) -> None:
        ticket = rank.load("ab")
        assert rank.step([arrival("r", ticket)], scheduled={"r": 2}) is None
        assert not rank.guide.is_sampling
        assert allowed(rank.step(computed={"r": 2}, scheduled={"r": 1})) == [A]

    def test_an_unguided_request_is_none_of_ours(self, rank: Rank) -> None:
        assert not rank.guide.has_factories
        assert rank.step([arrival("r", None, is_guided=False)]) is None
        assert rank.guide.is_empty


class TestDrafts:
    def test_rows_after_each_draft_and_none_of_them_kept(self, rank: Rank) -> None:
        ticket = rank.load("abc")
        rank.step([arrival("r", ticket)])
        rank.sampled(r=[A])
        masks = rank.step(computed={"r": 3}, scheduled={"r": 3}, drafts={"r": [B, C]})
        assert [allowed(masks, row) for row in range(3)] == [[B], [C], [EOS]]
        assert masks is not None
        assert masks.acceptable == [2]
        rank.sampled(r=[B])  # the second draft was rejected
        assert allowed(rank.step(computed={"r": 4}, scheduled={"r": 1})) == [C]

    def test_unknown_to_the_scheduler_they_come_from_the_runner(self, rank: Rank) -> None:
        ticket = rank.load("abc")
        rank.step([arrival("r", ticket)])
        rank.sampled(r=[A])
        rank.guide.begin(Plan((), (), {}, [("r", 3)], {"r": 3}, {"r": [-1, -1]}))
        rank.guide.learn_drafts(["r", "gone"], [[B, B], [1, 2]])
        masks = rank.guide.masks()
        assert masks is not None
        assert masks.acceptable == [1]
        assert [allowed(masks, row) for row in range(2)] == [[B], [C]]
        assert (masks.bitmask[2] == -1).all()

    def test_known_to_nobody_none_may_be_accepted(self, rank: Rank) -> None:
        ticket = rank.load("abc")
        rank.step([arrival("r", ticket)])
        rank.sampled(r=[A])
        rank.guide.begin(Plan((), (), {}, [("r", 3)], {"r": 3}, {"r": [-1, -1]}))
        rank.guide.learn_drafts(["r"], [[-1, -1]])
        masks = rank.guide.masks()
        assert masks is not None
        assert masks.acceptable == [0]
        assert allowed(masks, 0) == [B]

    def test_of_a_request_that_missed_a_step_are_kept(self, rank: Rank) -> None:
        ticket = rank.load("abc")
        rank.step([arrival("r", ticket), arrival("s", ticket)])
        rank.sampled(r=[A], s=[A])
        rank.guide.begin(Plan({}, (), {}, [("s", 3)], {"s": 1}, {}))
        rank.guide.learn_drafts(["r", "s"], [[B, C], [B, C]])
        rank.guide.masks()
        rank.sampled(s=[B])
        rank.guide.begin(Plan((), (), {}, [("r", 3)], {"r": 3}, {"r": [-1, -1]}))
        rank.guide.learn_drafts(["s"], [[C, C]])
        masks = rank.guide.masks()
        assert masks is not None
        assert masks.acceptable == [2]

    @staticmethod
    def verify(rank: Rank, drafts: list[int], known: list[int] | None = None) -> Masks | None:
        """Verify drafts of `r`, which has one token; `known` to the runner alone."""
        scheduled = drafts if known is None else [-1] * len(drafts)
        rank.guide.begin(Plan((), (), {}, [("r", 3)], {"r": 1 + len(drafts)}, {"r": scheduled}))
        rank.guide.learn_drafts(["r"], [drafts if known is None else known])
        return rank.guide.masks()

    @pytest.mark.parametrize(
        ("known", "invalid"),
        [([B, C, B], {"r": 1}), ([A, C, C], {"r": 3}), ([B, -1, -1], {"r": 2}), ([-1, -1, -1], {"r": 3})],
    )
    def test_that_are_forbidden_or_none_are_told(
        self, rank: Rank, known: list[int], invalid: dict[str, int]
    ) -> None:
        """As upstream's scheduler tells of those that it has the grammar of: without padding."""
        rank.step([arrival("r", rank.load("ab*c?"))])
        rank.sampled(r=[A])
        self.verify(rank, [-1] * 3, known)
        assert rank.guide.invalid_drafts == invalid
        rank.sampled(r=[B])
        rank.step(computed={"r": 4}, scheduled={"r": 1})
        assert rank.guide.invalid_drafts == {}

    def test_nothing_is_forbidden_after_the_end(self) -> None:
        """Where the request ignores it, sync and async scheduling speculate alike."""
        for is_async in (False, True):
            rank = Rank(is_async=is_async)
            rank.step([arrival("r", rank.load("a"))])
            rank.sampled(r=[A, EOS])
            assert self.verify(rank, [B, B], [B, B] if is_async else None) is None
            assert rank.guide.invalid_drafts == {}

    def test_of_a_step_after_the_end_are_not_counted(self, rank: Rank) -> None:
        """Async scheduling runs one before it hears of the end; sync scheduling does not."""
        rank.step([arrival("r", rank.load("[abc]*"), max_tokens=3)])
        rank.sampled(r=[A])
        self.verify(rank, [B, 0])
        rank.sampled(r=[B, C])
        self.verify(rank, [B, B])
        rank.guide.sampled(lambda: [("r", [B, B])])  # which the engine core drops
        rank.step(finished=["r"])
        (record,) = rank.records
        assert (record.drafts_proposed, record.drafts_accepted, record.drafts_forbidden) == (2, 1, 1)
        assert record.tokens == 3


class TestFailedAlone:
    """A rank that gave a sequence up runs on until the others have: it must not run ahead of them.

    The engine core hears another rank, and gives the sequence as many blocks as that one accepts tokens.
    """

    STEP: ClassVar[dict[str, Any]] = {"computed": {"r": 3, "s": 3}, "scheduled": {"r": 3, "s": 3}}
    DRAFTS: ClassVar[dict[str, list[int]]] = {"r": [B, B], "s": [B, B]}

    @pytest.fixture
    def failed(self, rank: Rank) -> Rank:
        """A rank on which `r` has failed, and is still scheduled, beside a healthy `s`."""
        ticket = rank.load("ab*")
        rank.step([arrival("r", ticket), arrival("s", ticket)])
        assert rank.sampled(r=[A], s=[A]) == {}
        rank.step(computed={"r": 3, "s": 3}, scheduled={"r": 1, "s": 1})
        assert rank.sampled(r=[A], s=[B]) == {}
        return rank

    @pytest.mark.parametrize("known", [True, False], ids=["to the scheduler", "to the runner"])
    def test_no_draft_of_it_is_accepted(self, failed: Rank, *, known: bool) -> None:
        for _ in range(3):
            scheduled = self.DRAFTS if known else {"r": [-1, -1], "s": [-1, -1]}
            failed.guide.begin(Plan({}, (), {}, [("r", 4), ("s", 4)], {"r": 3, "s": 3}, scheduled))
            failed.guide.learn_drafts(list(self.DRAFTS), list(self.DRAFTS.values()))
            masks = failed.guide.masks()
            assert masks is not None
            assert dict(zip(masks.request_ids, masks.acceptable, strict=True)) == {"r": 0, "s": 2}
            # Model Runner V1 looks at the rows alone: the first draft is the one token that is not sampled.
            first = 3 * masks.request_ids.index("r")
            assert {*range(VOCAB)} - {*allowed(masks, first)} == {B}
            failed.sampled(r=[A], s=[B])

    def test_none_is_in_the_step_in_which_it_fails(self, rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
        """All of its rows are free then, and Model Runner V1 looks at nothing else."""
        rank.step([arrival("r", rank.load("ab*"))])
        rank.sampled(r=[A])

        def raising(*_: Any) -> None:
            raise RuntimeError("made to fail")

        monkeypatch.setattr(GuidanceFiller, "fill", raising)
        masks = rank.step(computed={"r": 3}, scheduled={"r": 3}, drafts={"r": [B, B]})
        assert masks is not None
        assert {*range(VOCAB)} - {*allowed(masks, 0)} == {B}
        assert rank.sampled(r=[A]) == {"r": "sequence_matcher_failed"}

    def test_none_of_a_step_is_left_where_the_next_one_cannot_be_read(self, rank: Rank) -> None:
        rank.step([arrival("r", rank.load("ab*"))])
        rank.sampled(r=[A])
        rank.step(computed={"r": 3}, scheduled={"r": 3}, drafts={"r": [B, B]})
        rank.guide.leave_step()
        rank.guide.fail_all()
        assert rank.guide.masks() is None

    def test_none_is_where_it_never_had_a_matcher(self, rank: Rank) -> None:
        rank.step([arrival("r", Ticket(key="absent", backend="guidance"))])
        assert rank.sampled(r=[A]) == {"r": "sequence_matcher_failed"}
        masks = rank.step(computed={"r": 3}, scheduled={"r": 3}, drafts={"r": [B, B]})
        assert masks is not None
        assert masks.acceptable == [0]

    def test_without_drafts_it_is_not_masked(self, failed: Rank) -> None:
        masks = failed.step(computed={"r": 4, "s": 4}, scheduled={"r": 1, "s": 1})
        assert masks is not None
        assert masks.request_ids == ["s"]


def burn(ns: int) -> None:
    until = time.thread_time_ns() + ns
    while time.thread_time_ns() < until:
        pass


class TestSlow:
    """One sequence's grammar that takes long ends that sequence, before the next token takes longer still."""

    @pytest.fixture
    def consumed(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Tokens that matchers took; B takes CPU time, C takes time."""
        taken: list[int] = []
        consume = GuidanceMatcher._consume

        def slow(self: GuidanceMatcher, tokens: Sequence[int]) -> bool:
            taken.extend(tokens)
            if tokens[-1] == B:
                burn(3 * slowness.LIMIT_NS // 2)
            if tokens[-1] == C:
                time.sleep(2e-9 * slowness.LIMIT_NS)
            return consume(self, tokens)

        monkeypatch.setattr(GuidanceMatcher, "_consume", slow)
        return taken

    def test_to_accept_a_token(self, rank: Rank, consumed: list[int]) -> None:
        ticket = rank.load("[abc]*")
        rank.step([arrival(name, ticket) for name in "rst"])
        rank.sampled(r=[A], s=[B], t=[C])
        # The step that finds it is masked as on ranks that did not.
        masks = rank.step(computed=dict.fromkeys("rst", 3), scheduled=dict.fromkeys("rst", 1))
        assert masks is not None
        assert masks.request_ids == ["r", "s", "t"]
        assert rank.sampled(r=[B], s=[B], t=[C]) == {"s": "sequence_slow"}
        # The core has not ended it yet (async): nothing more is spent on it.
        del consumed[:]
        masks = rank.step(computed=dict.fromkeys("rst", 4), scheduled=dict.fromkeys("rst", 1))
        assert consumed == [B, C]
        assert masks is not None
        assert masks.request_ids == ["r", "t"]
        assert rank.sampled(r=[A], t=[A]) == {"r": "sequence_slow"}

    def test_many_tokens_at_once_may_take_longer(self, rank: Rank, consumed: list[int]) -> None:
        ticket = rank.load("[abc]*")
        rank.step([arrival("r", ticket)])
        rank.sampled(r=[A] * 200 + [B])
        rank.step(computed={"r": 3}, scheduled={"r": 1})
        assert rank.sampled(r=[A]) == {}
        assert len(consumed) == 201

    @pytest.mark.parametrize(("times", "ends"), [(99, {"r": "sequence_slow"}), (1, {})])
    def test_to_fill_a_mask(
        self, rank: Rank, monkeypatch: pytest.MonkeyPatch, times: int, ends: dict[str, str]
    ) -> None:
        """What a library makes at its first use takes long once; that is not the grammar's fault."""
        fill, left = GuidanceFiller.fill, [times]

        def slow(self: GuidanceFiller, walks: Sequence[Any], bitmask: Any) -> None:
            if left[0] and any(walk.row == 0 for walk in walks):
                left[0] -= 1
                burn(2 * slowness.LIMIT_NS)
            fill(self, walks, bitmask)

        monkeypatch.setattr(GuidanceFiller, "fill", slow)
        ticket = rank.load("aaa[bc]")
        rank.step([arrival("r", ticket), arrival("s", ticket)])
        assert rank.sampled(r=[A], s=[A]) == {}
        masks = rank.step(computed=dict.fromkeys("rs", 3), scheduled=dict.fromkeys("rs", 1))
        assert allowed(masks, 0) == allowed(masks, 1) == [A]
        assert rank.sampled(r=[A], s=[A]) == ends

    def test_a_rank_without_a_core_is_not_a_slow_grammar(
        self, rank: Rank, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill = GuidanceFiller.fill

        def late(self: GuidanceFiller, walks: Sequence[Any], bitmask: Any) -> None:
            time.sleep(2e-9 * slowness.LIMIT_NS)
            fill(self, walks, bitmask)

        monkeypatch.setattr(GuidanceFiller, "fill", late)
        assert allowed(rank.step([arrival("r", rank.load("ab"))])) == [A]
        assert rank.sampled(r=[A]) == {}


class TestEnds:
    def test_a_rejected_token(self, rank: Rank) -> None:
        ticket = rank.load("ab")
        rank.step([arrival("r", ticket)])
        rank.sampled(r=[C])
        assert rank.step(computed={"r": 3}, scheduled={"r": 1}) is None  # sampled unmasked from now on
        assert rank.sampled(r=[5]) == {"r": "sequence_token_rejected"}
        assert rank.guide.ends() == []  # told once
        rank.step(finished=["r"])
        assert rank.records[0].end_reason == "sequence_token_rejected"

    def test_a_grammar_that_is_not_loaded(self, rank: Rank) -> None:
        other = rank.load("ab")
        masks = rank.step([arrival("r", Ticket(key="?", backend="guidance")), arrival("s", other)])
        assert masks is not None
        assert masks.request_ids == ["s"]
        assert rank.sampled(r=[5], s=[A]) == {"r": "sequence_matcher_failed"}

    def test_a_guided_request_without_a_ticket(self, rank: Rank) -> None:
        assert rank.step([arrival("r", None)]) is None
        assert rank.sampled(r=[5]) == {"r": "request_not_admitted"}

    def test_a_native_fault_while_another_goes_on(self, rank: Rank) -> None:
        ticket = rank.load("ab")
        rank.step([arrival("r", ticket), arrival("s", ticket)])
        rank.sampled(s=[A])
        rank.guide._sequences["r"].matcher.native.consume_tokens([C])  # the library's own error state
        masks = rank.step(computed={"r": 3, "s": 3}, scheduled={"r": 1, "s": 1})
        assert masks is not None
        assert (masks.bitmask[0] == -1).all()
        assert allowed(masks, 1) == [B]
        assert rank.sampled(r=[5], s=[B]) == {"r": "sequence_matcher_failed"}

    def test_a_native_fault_in_accepting(self, rank: Rank) -> None:
        ticket = rank.load("ab")
        rank.step([arrival("r", ticket)])
        rank.guide._sequences["r"].matcher.native.consume_tokens([C])
        rank.sampled(r=[A])
        rank.step(computed={"r": 3}, scheduled={"r": 1})
        assert rank.sampled(r=[5]) == {"r": "sequence_matcher_failed"}

    def test_whatever_cannot_be_told_apart_ends_them_all(self, rank: Rank) -> None:
        ticket = rank.load("ab")
        rank.step([arrival("r", ticket), arrival("s", ticket)])
        rank.guide.fail_all()
        assert set(rank.sampled(r=[A], s=[A]).values()) == {"sequence_matcher_failed"}


class TestPreemption:
    def test_a_v2_request_comes_back_with_all_its_tokens(self, rank: Rank) -> None:
        ticket = rank.load("abca")
        rank.step([arrival("r", ticket)])
        rank.sampled(r=[A])
        # Preempted here; its next token was still in flight and reached the engine core, then it came back.
        rank.guide.begin(Plan({}, (), {}, (), {}, {}))
        back = arrival("r", ticket, known_tokens=[1, 2, 3, A, B])
        assert rank.step([back], scheduled={"r": 4}) is None  # one more token to compute
        assert allowed(rank.step(computed={"r": 4}, scheduled={"r": 1})) == [C]

    def test_what_was_sampled_before_it_and_dropped_is_taken_back(self, rank: Rank) -> None:
        ticket = rank.load("a[bc]a")
        rank.step([arrival("r", ticket)])
        rank.sampled(r=[A])
        rank.step(computed={"r": 3}, scheduled={"r": 1})
        rank.sampled(r=[B])
        rank.step(computed={"r": 4}, scheduled={"r": 1})
        masks = rank.step([arrival("r", ticket, known_tokens=[1, 2, 3, A])])
        assert allowed(masks) == [B, C]

    def test_an_output_in_flight_from_before_it_is_ignored(self, rank: Rank) -> None:
        ticket = rank.load("a[bc]a")
        rank.step([arrival("r", ticket)])
        rank.sampled(r=[A])
        rank.step(computed={"r": 3}, scheduled={"r": 1})
        rank.sampled(r=[B])  # not read yet when the request comes back without it
        masks = rank.step([arrival("r", ticket, known_tokens=[1, 2, 3, A])])
        assert allowed(masks) == [B, C]

    def test_a_v1_request_resumes_among_the_cached(self, rank: Rank) -> None:
        ticket = rank.load("abc")
        rank.step([arrival("r", ticket)])
        rank.sampled(r=[A])
        masks = rank.step(computed={"r": 0}, scheduled={"r": 5}, resumed={"r": [1, 2, 3, A, B]})
        assert allowed(masks) == [C]

    def test_another_request_under_the_same_name_starts_anew(self, rank: Rank) -> None:
        first, second = rank.load("ab"), rank.load("ca")
        rank.step([arrival("r", first)])
        rank.sampled(r=[A])
        masks = rank.step([arrival("r", second)])
        assert allowed(masks) == [C]


class Counts(ProcessorFactory[Params]):
    """Adds to token 0 how many tokens there are and to token 1 their sum, each row as of its drafts."""

    alive: ClassVar[list["CountsState"]] = []

    def create(self, _sequence: SequenceInfo[Params]) -> SequenceProcessor | None:
        self.alive.append(CountsState())
        return self.alive[-1]


class CountsState(SequenceProcessor):
    def __init__(self) -> None:
        self.tokens: list[int] = []

    def accept(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def prepare(self, ahead: Sequence[int]) -> list[Edits | None]:
        rows = [[*self.tokens, *ahead[:place]] for place in range(1 + len(ahead))]
        return [Edits.add([0, 1], [float(len(row)), float(sum(row))]) if row else None for row in rows]

    def release(self) -> None:
        Counts.alive.remove(self)


class OneByOne(Counts):
    supports_speculation = False


class Unable:
    """An EditsV2 whose buffer cannot be written."""

    def stage(self, *_edits: Any) -> None:
        raise RuntimeError("no memory")

    def taken(self) -> Any:
        return dict


class TestProcessors:
    COUNTS = LogitsProcessorConfig(name="counts", factory=f"{__name__}:Counts")
    ONE_BY_ONE = LogitsProcessorConfig(name="one-by-one", factory=f"{__name__}:OneByOne")
    FAILS = LogitsProcessorConfig(name="fails", factory="support.failing:FailsLater", params={"after": 1})
    ONLY = LogitsProcessorConfig(name="only", factory="support.odd_processors:Only")

    @pytest.fixture(autouse=True)
    def _none_alive(self) -> None:
        Counts.alive.clear()

    @staticmethod
    def edits(rank: Rank) -> dict[tuple[str, int], list[float]]:
        """Return what is added to tokens 0 and 1, by request and row."""
        edits = rank.guide.edits()
        return {} if edits is None else {(name, row): list(one.values) for name, row, one in edits.each()}

    def test_change_the_rows_of_their_sequence_alone(self) -> None:
        rank = Rank([self.COUNTS])
        none = {"logits_processors": ""}
        rank.step([arrival("r", None, is_guided=False), arrival("s", None, is_guided=False, arguments=none)])
        assert self.edits(rank) == {}
        rank.sampled(r=[7, 8, 7], s=[7])
        rank.step(computed={"r": 3, "s": 3}, scheduled={"r": 1, "s": 1})
        assert self.edits(rank) == {("r", 0): [3, 22]}

    def test_a_draft_row_sees_the_drafts_before_it_and_they_leave_no_trace(self) -> None:
        rank = Rank([self.COUNTS])
        rank.step([arrival("r", None, is_guided=False)])
        rank.sampled(r=[7, 8])
        rank.step(computed={"r": 3}, scheduled={"r": 3}, drafts={"r": [7, 9]})
        assert self.edits(rank) == {("r", 0): [2, 15], ("r", 1): [3, 22], ("r", 2): [4, 31]}
        rank.sampled(r=[5])
        rank.step(computed={"r": 4}, scheduled={"r": 2}, drafts={"r": [7]})
        assert self.edits(rank) == {("r", 0): [3, 20], ("r", 1): [4, 27]}

    def test_a_draft_that_they_could_not_look_at_is_not_accepted(self) -> None:
        rank = Rank([self.COUNTS])
        ticket = rank.load("ab*")
        rank.step([arrival("r", None, is_guided=False), arrival("s", ticket)])
        rank.sampled(r=[7], s=[A])
        step = {"computed": {"r": 3, "s": 3}, "scheduled": {"r": 3, "s": 3}}
        masks = rank.step(**step, drafts={"r": [7, -1], "s": [B, B]})
        assert masks is not None
        assert dict(zip(masks.request_ids, masks.acceptable, strict=True)) == {"r": 1, "s": 2}
        assert len(masks.bitmask) == 6
        at = 3 * masks.request_ids.index("r")
        assert (masks.bitmask[at : at + 3] == -1).all()
        # What all could look at needs no rows of its own.
        masks = rank.step(**step, drafts={"r": [7, 7], "s": [B, B]})
        assert masks is not None
        assert masks.request_ids == ["s"]

    def test_one_that_takes_no_drafts_has_them_all_refused(self) -> None:
        rank = Rank([self.ONE_BY_ONE])
        rank.step([arrival("r", None, is_guided=False), arrival("s", rank.load("ab*"))])
        rank.sampled(r=[7], s=[A])
        masks = rank.step(
            computed={"r": 3, "s": 3}, scheduled={"r": 3, "s": 3}, drafts={"r": [7, 8], "s": [B, B]}
        )
        assert masks is not None
        assert masks.acceptable == [0, 0]
        assert self.edits(rank) == {("r", 0): [1, 7], ("s", 0): [1, A]}
        rank.step(finished=["s"])
        assert [one.takes_drafts for one in rank.records if isinstance(one, Decode)] == [False]

    def test_a_state_survives_preemption_and_each_is_released_once(self) -> None:
        rank = Rank([self.COUNTS])
        rank.step([arrival("r", None, is_guided=False)])
        rank.sampled(r=[7])
        rank.step([arrival("r", None, is_guided=False, known_tokens=[1, 2, 3, 7, 8, 7])])
        assert self.edits(rank) == {("r", 0): [3, 22]}
        rank.step([arrival("r", None, is_guided=False, known_tokens=[1, 2, 3, 9])])
        assert self.edits(rank) == {("r", 0): [1, 9]}
        assert len(Counts.alive) == 1
        rank.step(finished=["r"])
        assert Counts.alive == []

    def test_fifty_thousand_sequences_leave_nothing(self) -> None:
        rank = Rank([self.COUNTS])
        for number in range(0, 50_000, 50):
            names = [str(number + index) for index in range(50)]
            rank.step([arrival(name, None, is_guided=False) for name in names])
            assert len(Counts.alive) == 50
            rank.sampled(**{name: [7] for name in names})
            rank.step(finished=names)
        assert Counts.alive == []
        assert rank.guide.is_empty

    def test_a_failing_one_ends_its_sequence_alone(self) -> None:
        rank = Rank([self.FAILS, self.COUNTS])
        chosen = {"logits_processors": "fails,counts"}
        other = {"logits_processors": "counts"}
        r = arrival("r", None, is_guided=False, arguments=chosen)
        rank.step([r, arrival("s", rank.load("ab"), arguments=other)])
        assert self.edits(rank) == {}
        rank.sampled(r=[7], s=[A])
        rank.step(computed={"r": 3, "s": 3}, scheduled={"r": 1, "s": 1})
        assert self.edits(rank) == {("s", 0): [1, A]}
        assert rank.sampled(r=[7], s=[B]) == {"r": ErrorCode.SEQUENCE_PROCESSOR_FAILED.value}

    def test_two_that_leave_no_token_end_their_sequence(self) -> None:
        other = msgspec.structs.replace(self.ONLY, name="other", params={"token": 1})
        rank = Rank([self.ONLY, other])
        rank.step([arrival("r", None, is_guided=False)])
        assert self.edits(rank) == {}
        assert rank.sampled(r=[7]) == {"r": "sequence_processor_no_token"}

    def test_two_that_leave_none_behind_a_draft_may_not_be_asked(self) -> None:
        """Whether that row is reached is known once the step has sampled."""
        after = LogitsProcessorConfig(name="after", factory="support.odd_processors:OnlyAfter")
        other = msgspec.structs.replace(after, name="other", params={"token": 1})
        rank = Rank([after, other])
        rank.step([arrival("r", None, is_guided=False)])
        rank.sampled(r=[7])
        rank.step(computed={"r": 3}, scheduled={"r": 2}, drafts={"r": [8]})
        edits = rank.guide.edits()
        assert edits is not None
        [(_, row, change)] = edits.each()
        assert row == 1
        assert not apply(change, np.zeros(VOCAB, np.float32))  # as the kernel finds it
        assert rank.sampled(r=[9]) == {}

    def test_what_only_the_device_sees_ends_its_sequence_without_that_step_s_token(self) -> None:
        rank = Rank([self.COUNTS])
        rank.step([arrival(name, None, is_guided=False) for name in "rs"])
        copied: dict[str, RowFault] = {}

        def read() -> Iterator[tuple[str, list[int]]]:
            copied["r"] = RowFault(0, ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN)  # what it waits for
            yield from (("r", [7]), ("s", [8]))

        rank.guide.sampled(read, lambda: dict(copied))
        rank.step(computed={"r": 3, "s": 3}, scheduled={"r": 1, "s": 1})
        assert self.edits(rank) == {("s", 0): [1, 8]}
        assert rank.sampled(s=[8]) == {"r": "sequence_processor_no_token"}

    @pytest.mark.parametrize("is_async", [True, False])
    def test_a_fault_in_a_request_s_last_step_is_recorded(self, *, is_async: bool) -> None:
        """The core has dropped that step's tokens, so that it counts no more than the rank has."""
        rank = Rank([self.COUNTS], is_async=is_async)
        rank.step([arrival("r", None, is_guided=False, max_tokens=1)])
        faults = {"r": RowFault(0, ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN)}
        rank.guide.sampled(lambda: [("r", [7])], lambda: faults)
        rank.guide.ends()
        rank.step(finished=["r"])
        assert [type(one).__name__ for one in rank.records] == ["ProcessorFailure"]

    def test_a_row_from_which_nothing_was_sampled_ends_nothing(self) -> None:
        """It is behind a draft that was not accepted: without speculation nobody would look there."""
        rank = Rank([self.COUNTS])
        rank.step([arrival(name, None, is_guided=False) for name in "rs"])
        rank.sampled(r=[7], s=[7])
        rank.step(computed={"r": 3, "s": 3}, scheduled={"r": 2, "s": 2}, drafts={"r": [7], "s": [7]})
        faults = dict.fromkeys("rs", RowFault(1, ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN))
        rank.guide.sampled(lambda: [("r", [8]), ("s", [7, 8])], lambda: faults)
        rank.step(computed={"r": 4, "s": 5}, scheduled={"r": 1, "s": 1})
        assert self.edits(rank) == {("r", 0): [2, 15]}
        assert rank.sampled(r=[8]) == {"s": "sequence_processor_no_token"}

    @pytest.mark.parametrize(("sampled", "ends"), [([8], {}), ([7, 8], {"r": "sequence_processor_no_token"})])
    def test_nor_is_the_core_told_of_it(self, sampled: list[int], ends: dict[str, str]) -> None:
        made = SimpleNamespace(sampled_token_ids=[sampled], req_id_to_index={"r": 0})
        output = SimpleNamespace(get_output=lambda: made)
        tell_faults(output, lambda: {"r": RowFault(1, ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN)})
        assert output.get_output() is made
        assert getattr(made, ENDS_ATTRIBUTE, {}) == ends

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.parametrize("version", ["V1", "V2"])
    def test_edits_that_a_runner_cannot_apply_end_their_sequences_and_it_samples(self, version: str) -> None:
        module = importlib.import_module(f"guided_engine.compat.runner_{version.lower()}")
        runner = getattr(module, f"Runner{version}")
        rank = Rank([self.COUNTS])
        rank.step([arrival(name, None, is_guided=False) for name in "rs"])
        rank.sampled(r=[7], s=[])
        rank.step(computed={"r": 3}, scheduled={"r": 1})
        adapter = runner.__new__(runner)
        adapter._guide, adapter._runner, adapter._edits = rank.guide, None, Unable()
        output = SimpleNamespace(get_output=dict)
        assert adapter.sample(lambda masks: masks or output, None, rank.guide.edits())[0] is output
        assert rank.sampled(r=[8]) == {"r": "sequence_processor_failed"}

    def test_an_unknown_name_ends_the_sequence(self) -> None:
        rank = Rank([self.COUNTS])
        rank.step([arrival("r", None, is_guided=False, arguments={"logits_processors": "absent"})])
        assert rank.sampled(r=[7]) == {"r": "sequence_processor_failed"}

    def test_a_sequence_is_told_what_it_is(self) -> None:
        rank = Rank([LogitsProcessorConfig(name="spy", factory="support.odd_processors:Spy")])
        from support.odd_processors import Spy

        params, beyond = object(), [EOS, 10**9, -1]
        rank.step(
            [arrival("r", None, is_guided=False, max_tokens=9, sampling_params=params, stop_tokens=beyond)]
        )
        seen = Spy.seen[-1]
        assert seen.sampling_params is params
        assert (seen.request_id, seen.prompt_tokens, seen.max_tokens) == ("r", (1, 2, 3), 9)
        assert seen.stop_tokens == {EOS}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("max_tokens", "sampled", "reason"),
    [
        (None, [A, B, EOS], "completed"),
        (3, [A, B, EOS], "completed"),
        (2, [A, B], "length"),
        (3, [A, B], "aborted"),
        (None, [A, C], "stopped"),
    ],
)
def test_a_record_says_how_its_sequence_ended(
    *, is_async: bool, max_tokens: int | None, sampled: list[int], reason: str
) -> None:
    rank = Rank(is_async=is_async)
    rank.step([arrival("r", rank.load("a[bc]"), max_tokens=max_tokens, stop_tokens=[EOS, C])])
    for number, token in enumerate(sampled, 3):
        rank.sampled(r=[token])
        if token != sampled[-1]:  # what is sampled last nobody may read any more
            rank.step(computed={"r": number}, scheduled={"r": 1})
    rank.step(finished=["r"])
    assert [record.end_reason for record in rank.records] == [reason]


def test_a_record_counts_what_happened(rank: Rank) -> None:
    ticket = rank.load("abc")
    rank.step([arrival("r", ticket)])
    rank.sampled(r=[A])
    rank.step(computed={"r": 3}, scheduled={"r": 3}, drafts={"r": [B, B]})
    rank.sampled(r=[B, C])
    rank.step(computed={"r": 5}, scheduled={"r": 1})
    rank.step(finished=["r"])
    (record,) = rank.records
    assert (record.tokens, record.steps, record.fills) == (3, 3, 3)
    assert (record.drafts_proposed, record.drafts_accepted, record.drafts_forbidden) == (2, 1, 1)
    assert record.takes_drafts
    assert (record.grammar_key, record.backend, record.rank, record.end_reason) == (
        "abc",
        "guidance",
        0,
        "aborted",
    )
    assert record.fill_ns >= record.fill_max_ns > 0
    assert record.end_ns >= record.start_ns
