"""A rank's guided decoding step by step, as a runner's adapter takes it: real matchers, real logits."""

import importlib
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from guided_contract.config import LogitsProcessorConfig
from guided_contract.errors import ErrorCode
from guided_contract.records import Decode
from guided_contract.wire import Ticket
from guided_engine.compat.runner import ENDS_ATTRIBUTE, tell_faults
from guided_engine.matchers import stopwatch
from guided_engine.processors.interface import (
    Edits,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)
from guided_engine.ranks.step import RowFault
from guided_grammar.llguidance.matcher import GuidanceFiller, GuidanceMatcher
from support.odd_processors import Spy
from support.rank import EOS, VOCAB, A, B, C, Rank, Sampled, acceptable, arrival, forbidden, rows

FREE = list(range(VOCAB))
NO_TOKEN = RowFault(0, ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN)


@pytest.fixture
def rank() -> Rank:
    return Rank()


def begin(rank: Rank, pattern: str, *names: str, **fields: Any) -> Any:
    """Have guided requests arrive; return the first step's masks."""
    ticket = rank.load(pattern)
    return rank.step([arrival(name, ticket, **fields) for name in names])


class TestMasks:
    def test_follow_the_grammar_to_its_end(self, rank: Rank) -> None:
        assert rows(begin(rank, "ab", "r")) == [[A]]
        assert rows(rank.next(r=[A])) == [[B]]
        assert rows(rank.next(r=[B])) == [[EOS]]
        # The engine core has not seen the end yet (async): one more step, unmasked.
        assert rank.next(r=[EOS]) is None
        assert rank.sampled(r=[77]) == {}
        rank.step(finished=["r"])
        assert rank.guide.is_empty

    def test_each_sequence_has_its_own_state_under_one_key(self, rank: Rank) -> None:
        begin(rank, "a[bc]", "r", "s")
        rank.next(r=[A], s=[A])
        masks = rank.next(r=[B], s=[C])
        assert masks.request_ids == ["r", "s"]
        assert rows(masks) == [[EOS], [EOS]]
        assert rank.guide.ends() == []


class TestDrafts:
    def test_rows_after_each_draft_and_none_of_them_kept(self, rank: Rank) -> None:
        begin(rank, "abc", "r")
        masks = rank.next(r=[A], drafts={"r": [B, C]})
        assert (rows(masks), masks.acceptable) == ([[B], [C], [EOS]], [2])
        assert rows(rank.next(r=[B])) == [[C]]  # the second draft was rejected

    def test_unknown_to_the_scheduler_they_come_from_the_runner(self, rank: Rank) -> None:
        begin(rank, "abc", "r")
        masks = rank.next(r=[A], drafts={"r": [-1, -1]}, learned={"r": [B, B], "gone": [1, 2]})
        # And none of those that nobody knows.
        assert (rows(masks), masks.acceptable) == ([[B], [C], FREE], [1])

    def test_of_a_request_that_missed_a_step_are_kept(self, rank: Rank) -> None:
        begin(rank, "abc", "r", "s")
        rank.next("s", r=[A], s=[A], learned={"r": [B, C], "s": [B, C]})
        masks = rank.next("r", s=[B], drafts={"r": [-1, -1]}, learned={"s": [C, C]})
        assert masks.acceptable == [2]

    @pytest.mark.parametrize(
        ("known", "invalid"),
        [([B, C, B], {"r": 1}), ([B, -1, -1], {"r": 2}), ([-1, -1, -1], {"r": 3})],
    )
    def test_that_are_forbidden_or_none_are_told(
        self, rank: Rank, known: list[int], invalid: dict[str, int]
    ) -> None:
        """As upstream's scheduler tells of those that it has the grammar of: without padding."""
        begin(rank, "ab*c?", "r")
        rank.next(r=[A], drafts={"r": [-1] * 3}, learned={"r": known})
        assert rank.guide.invalid_drafts == invalid
        rank.next(r=[B])
        assert rank.guide.invalid_drafts == {}

    @pytest.mark.parametrize("is_async", [False, True])
    def test_nothing_is_forbidden_after_the_end(self, *, is_async: bool) -> None:
        """Where the request ignores it, sync and async scheduling speculate alike."""
        rank = Rank(is_async=is_async)
        begin(rank, "a", "r")
        scheduled = [-1, -1] if is_async else [B, B]
        assert rank.next(r=[A, EOS], drafts={"r": scheduled}, learned={"r": [B, B]}) is None
        assert rank.guide.invalid_drafts == {}

    def test_of_a_step_after_the_end_are_not_counted(self, rank: Rank) -> None:
        """Async scheduling runs one before it hears of the end; sync scheduling does not."""
        begin(rank, "[abc]*", "r", max_tokens=3)
        rank.next(r=[A], drafts={"r": [B, 0]})
        rank.next(r=[B, C], drafts={"r": [B, B]})
        rank.sampled(r=[B, B])  # which the engine core drops
        rank.step(finished=["r"])
        (record,) = rank.records
        assert (record.drafts_proposed, record.drafts_accepted, record.drafts_forbidden) == (2, 1, 1)
        assert (record.tokens, record.backend, record.rank) == (3, "guidance", 0)
        assert record.fill_ns >= record.fill_max_ns > 0


class TestFailedAlone:
    """A rank that gave a sequence up runs on until the others have: it must not run ahead of them.

    The engine core hears another rank, and gives the sequence as many blocks as that one accepts tokens.
    Model Runner V1 looks at the rows alone: the first draft is the one token that is not sampled.
    """

    def test_no_draft_of_it_is_accepted(self, rank: Rank) -> None:
        begin(rank, "ab*", "r", "s")
        rank.next(r=[A], s=[A])
        drafts = {"r": [B, B], "s": [B, B]}
        for scheduled in (drafts, {"r": [-1, -1], "s": [-1, -1]}):  # known to the scheduler, the runner
            masks = rank.next(r=[A], s=[B], drafts=scheduled, learned=drafts)
            assert acceptable(masks) == {"r": 0, "s": 2}
            assert forbidden(masks, 3 * masks.request_ids.index("r")) == {B}

    def test_none_is_in_the_step_in_which_it_fails(self, rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
        begin(rank, "ab*", "r")
        monkeypatch.setattr(GuidanceFiller, "fill", None)
        assert forbidden(rank.next(r=[A], drafts={"r": [B, B]})) == {B}
        assert rank.sampled(r=[A]) == {"r": "sequence_matcher_failed"}


def burn(ns: int) -> None:
    until = time.thread_time_ns() + ns
    while time.thread_time_ns() < until:
        pass


class TestSlow:
    """One sequence's grammar that takes long ends that sequence, before the next token takes longer still."""

    def test_to_accept_a_token(self, rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
        """B takes CPU time, which counts; C takes time."""
        consumed: list[int] = []
        consume = GuidanceMatcher._consume

        def slow(self: GuidanceMatcher, tokens: Sequence[int]) -> bool:
            consumed.extend(tokens)
            if tokens[-1] == B:
                burn(3 * stopwatch.LIMIT_NS // 2)
            if tokens[-1] == C:
                time.sleep(2e-9 * stopwatch.LIMIT_NS)
            return consume(self, tokens)

        monkeypatch.setattr(GuidanceMatcher, "_consume", slow)
        begin(rank, "[abc]*", *"rst")
        # The step that finds it is masked as on ranks that did not.
        assert rank.next(r=[A], s=[B], t=[C]).request_ids == ["r", "s", "t"]
        # The core has not ended it yet (async): nothing more is spent on it.
        del consumed[:]
        masks = rank.next(r=[B], s=[B], t=[C])
        assert (rank.ended, consumed, masks.request_ids) == ({"s": "sequence_slow"}, [B, C], ["r", "t"])
        assert rank.sampled(r=[A], t=[A]) == {"r": "sequence_slow"}

    @pytest.mark.parametrize(("times", "ends"), [(99, {"r": "sequence_slow"}), (1, {})])
    def test_to_fill_a_mask(
        self, rank: Rank, monkeypatch: pytest.MonkeyPatch, times: int, ends: dict[str, str]
    ) -> None:
        """What a library makes at its first use takes long once; that is not the grammar's fault."""
        fill, left = GuidanceFiller.fill, [times]

        def slow(self: GuidanceFiller, walks: Sequence[Any], bitmask: Any) -> None:
            if left[0] and any(walk.row == 0 for walk in walks):
                left[0] -= 1
                burn(2 * stopwatch.LIMIT_NS)
            fill(self, walks, bitmask)

        monkeypatch.setattr(GuidanceFiller, "fill", slow)
        begin(rank, "aaa[bc]", "r", "s")
        assert rows(rank.next(r=[A], s=[A])) == [[A], [A]]
        assert rank.sampled(r=[A], s=[A]) == ends


class TestEnds:
    def test_a_rejected_token(self, rank: Rank) -> None:
        begin(rank, "ab", "r")
        assert rank.next(r=[C]) is None  # sampled unmasked from now on
        assert rank.sampled(r=[5]) == {"r": "sequence_token_rejected"}
        assert rank.guide.ends() == []  # told once
        rank.step(finished=["r"])
        assert rank.records[0].end_reason == "sequence_token_rejected"

    @pytest.mark.parametrize(
        ("ticket", "code"),
        [
            (Ticket(key="not loaded", backend="guidance"), "sequence_matcher_failed"),
            (None, "request_not_admitted"),
        ],
    )
    def test_a_request_whose_grammar_the_rank_has_not(
        self, rank: Rank, ticket: Ticket | None, code: str
    ) -> None:
        masks = rank.step([arrival("r", ticket), arrival("s", rank.load("ab"))])
        assert masks.request_ids == ["s"]
        assert rank.sampled(r=[5], s=[A]) == {"r": code}

    def test_a_native_fault_while_another_goes_on(self, rank: Rank) -> None:
        begin(rank, "ab", "r", "s")
        rank.sequence("r").matcher.native.consume_tokens([C])  # the library's own error state
        assert rows(rank.next("r", "s", s=[A])) == [FREE, [B]]
        assert rank.sampled(r=[5], s=[B]) == {"r": "sequence_matcher_failed"}


class TestPreemption:
    def test_a_v2_request_comes_back_with_all_its_tokens(self, rank: Rank) -> None:
        begin(rank, "abca", "r")
        rank.sampled(r=[A])
        rank.step()  # preempted here; its next token was still in flight and reached the engine core
        back = arrival("r", Ticket(key="abca", backend="guidance"), known_tokens=[1, 2, 3, A, B])
        assert rank.step([back], scheduled={"r": 4}) is None  # one more token to compute
        assert rows(rank.step(computed={"r": 4}, scheduled={"r": 1})) == [[C]]

    def test_what_was_sampled_before_it_and_dropped_is_taken_back(self, rank: Rank) -> None:
        begin(rank, "a[bc]a", "r")
        rank.next(r=[A])
        rank.next(r=[B])
        assert rows(begin(rank, "a[bc]a", "r", known_tokens=[1, 2, 3, A])) == [[B, C]]

    def test_a_v1_request_resumes_among_the_cached(self, rank: Rank) -> None:
        begin(rank, "abc", "r")
        rank.sampled(r=[A])
        masks = rank.step(computed={"r": 0}, scheduled={"r": 5}, resumed={"r": [1, 2, 3, A, B]})
        assert rows(masks) == [[C]]


class Counts(ProcessorFactory[Params]):
    """Adds to token 0 how many tokens there are and to token 1 their sum, each row as of its drafts."""

    prepared = 0

    def create(self, _sequence: SequenceInfo[Params]) -> SequenceProcessor | None:
        return CountsState()


class CountsState(SequenceProcessor):
    def __init__(self) -> None:
        self.tokens: list[int] = []

    def accept(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def prepare(self, ahead: Sequence[int]) -> list[Edits | None]:
        Counts.prepared += 1
        rows = [[*self.tokens, *ahead[:place]] for place in range(1 + len(ahead))]
        return [Edits.add([0, 1], [float(len(row)), float(sum(row))]) if row else None for row in rows]


class OneByOne(Counts):
    supports_speculation = False


class Unable:
    """An EditsV2 whose buffer cannot be written."""

    def stage(self, *_edits: Any) -> None:
        raise RuntimeError("no memory")

    def taken(self) -> Any:
        return dict


COUNTS = LogitsProcessorConfig(name="counts", factory=f"{__name__}:Counts")
ONE_BY_ONE = LogitsProcessorConfig(name="one-by-one", factory=f"{__name__}:OneByOne")
ONLY = LogitsProcessorConfig(name="only", factory="support.odd_processors:Only")


def processed(*processors: LogitsProcessorConfig, names: str = "r", **fields: Any) -> Rank:
    """Return a rank with processors at which unguided requests have arrived."""
    rank = Rank(processors)
    rank.step([arrival(name, None, is_guided=False, **fields) for name in names])
    return rank


def edits(rank: Rank) -> dict[tuple[str, int], list[float]]:
    """Return what is added to tokens 0 and 1, by request and row."""
    found = rank.guide.edits()
    return {} if found is None else {(name, row): list(one.values) for name, row, one in found.each()}


class TestProcessors:
    def test_change_the_rows_of_their_sequence_alone(self) -> None:
        rank = processed(COUNTS)
        none = {"logits_processors": ""}
        rank.step([arrival("s", None, is_guided=False, arguments=none)], scheduled={"r": 1})
        assert edits(rank) == {}
        rank.next(r=[7, 8, 7], s=[7])
        assert edits(rank) == {("r", 0): [3, 22]}

    def test_are_asked_once_a_step_for_all_its_rows(self) -> None:
        rank = processed(COUNTS)
        rank.next(r=[7], drafts={"r": [8]})
        before = Counts.prepared
        assert edits(rank) == {("r", 0): [1, 7], ("r", 1): [2, 15]}
        rank.next(r=[8, 9])
        assert edits(rank) == {("r", 0): [3, 24]}
        assert Counts.prepared == before + 2

    def test_a_draft_that_they_could_not_look_at_is_not_accepted(self) -> None:
        rank = processed(COUNTS)
        rank.step([arrival("s", rank.load("ab*"))], scheduled={"r": 1})
        masks = rank.next(r=[7], s=[A], drafts={"r": [7, -1], "s": [B, B]})
        assert acceptable(masks) == {"r": 1, "s": 2}
        at = 3 * masks.request_ids.index("r")
        assert (len(masks.bitmask), rows(masks)[at : at + 3]) == (6, [FREE] * 3)
        # What all could look at needs no rows of its own.
        assert rank.next(r=[7], s=[B], drafts={"r": [7, 7], "s": [B, B]}).request_ids == ["s"]

    def test_one_that_takes_no_drafts_has_them_all_refused(self) -> None:
        rank = processed(ONE_BY_ONE)
        rank.step([arrival("s", rank.load("ab*"))], scheduled={"r": 1})
        masks = rank.next(r=[7], s=[A], drafts={"r": [7, 8], "s": [B, B]})
        assert masks.acceptable == [0, 0]
        assert edits(rank) == {("r", 0): [1, 7], ("s", 0): [1, A]}
        rank.step(finished=["s"])
        assert [one.takes_drafts for one in rank.records if isinstance(one, Decode)] == [False]

    def test_two_that_leave_no_token_end_their_sequence(self) -> None:
        rank = processed(ONLY, msgspec.structs.replace(ONLY, name="other", params={"token": 1}))
        assert edits(rank) == {}
        assert rank.sampled(r=[7]) == {"r": "sequence_processor_no_token"}

    @pytest.mark.parametrize(("sampled", "ends"), [([8], {}), ([7, 8], {"r": "sequence_processor_no_token"})])
    def test_nor_is_the_core_told_of_it(self, sampled: list[int], ends: dict[str, str]) -> None:
        """Of a fault in a row behind a draft that was not accepted."""
        made = SimpleNamespace(sampled_token_ids=[sampled], req_id_to_index={"r": 0})
        output = SimpleNamespace(get_output=lambda: made)
        tell_faults(output, lambda: {"r": NO_TOKEN._replace(row=1)})
        assert output.get_output() is made
        assert getattr(made, ENDS_ATTRIBUTE, {}) == ends

    def test_what_only_the_device_sees_ends_its_sequence_without_that_step_s_token(self) -> None:
        rank = processed(COUNTS, names="rs")
        copied: dict[str, RowFault] = {}

        class Late(Sampled):
            def read(self) -> Any:
                copied["r"] = NO_TOKEN  # what it waits for
                return super().read()

        rank.guide.sampled(Late({"r": [7], "s": [8]}), lambda: dict(copied))
        rank.step(computed={"r": 3, "s": 3}, scheduled={"r": 1, "s": 1})
        assert edits(rank) == {("s", 0): [1, 8]}
        assert rank.sampled(s=[8]) == {"r": "sequence_processor_no_token"}

    def test_a_row_from_which_nothing_was_sampled_ends_nothing(self) -> None:
        """It is behind a draft that was not accepted: without speculation nobody would look there."""
        rank = processed(COUNTS, names="rs")
        rank.next(r=[7], s=[7], drafts={"r": [7], "s": [7]})
        faults = dict.fromkeys("rs", NO_TOKEN._replace(row=1))
        rank.guide.sampled(Sampled({"r": [8], "s": [7, 8]}), lambda: faults)
        rank.step(computed={"r": 4, "s": 5}, scheduled={"r": 1, "s": 1})
        assert edits(rank) == {("r", 0): [2, 15]}
        assert rank.sampled(r=[8]) == {"s": "sequence_processor_no_token"}

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.parametrize("version", ["V1", "V2"])
    def test_edits_that_a_runner_cannot_apply_end_their_sequences_and_it_samples(self, version: str) -> None:
        module = importlib.import_module(f"guided_engine.compat.runner_{version.lower()}")
        runner = getattr(module, f"Runner{version}")
        rank = processed(COUNTS)
        rank.next(r=[7])
        adapter = runner.__new__(runner)
        adapter._guide, adapter._runner, adapter._edits = rank.guide, None, Unable()
        output = SimpleNamespace(get_output=dict)
        assert adapter.sample(lambda masks: masks or output, None, rank.guide.edits())[0] is output
        assert rank.sampled(r=[8]) == {"r": "sequence_processor_failed"}

    def test_a_sequence_is_told_what_it_is(self) -> None:
        spy = LogitsProcessorConfig(name="spy", factory="support.odd_processors:Spy")
        params = object()
        processed(spy, max_tokens=9, sampling_params=params, stop_tokens=[EOS, 10**9, -1])
        seen = Spy.seen[-1]
        assert seen.sampling_params is params
        assert (seen.request_id, seen.prompt_tokens, seen.max_tokens) == ("r", (1, 2, 3), 9)
        assert seen.stop_tokens == {EOS}
        with pytest.raises(TypeError):  # the runner's own list, by which blocks are cached
            seen.prompt_tokens[0] = 9  # type: ignore[index]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("max_tokens", "sampled", "reason"),
    [
        (None, [A, B, EOS], "completed"),
        (2, [A, B], "length"),
        (3, [A, B], "aborted"),
        (None, [A, C], "stopped"),
    ],
)
def test_a_record_says_how_its_sequence_ended(
    *, is_async: bool, max_tokens: int | None, sampled: list[int], reason: str
) -> None:
    rank = Rank(is_async=is_async)
    begin(rank, "a[bc]", "r", max_tokens=max_tokens, stop_tokens=[EOS, C])
    *most, last = sampled
    for token in most:
        rank.next(r=[token])
    rank.sampled(r=[last])  # nobody may read it any more
    rank.step(finished=["r"])
    assert [record.end_reason for record in rank.records] == [reason]
