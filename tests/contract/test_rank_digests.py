"""Two ranks that go through the same steps say the same of it; one that strays says something else."""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import pytest

from guided_contract import records
from guided_contract.records import Digest, Digests
from guided_engine.matchers.agreement import Agreement, Progress
from guided_sidecar.ranks import agreement
from support.rank import EOS, A, B, C, Rank, arrival


def ranks(count: int = 2, *, every: int = 1) -> list[Rank]:
    return [Rank(compare_every=every, rank=number) for number in range(count)]


def said(rank: Rank) -> list[Digest]:
    return [one for record in rank.records if isinstance(record, Digests) for one in record.digests]


def run(rank: Rank, tokens: Sequence[int], *, drafts: Sequence[int] = ()) -> None:
    rank.step([arrival("r", rank.load("[a-c]*"))])
    for token in tokens:
        rank.next(r=[token], drafts={"r": drafts} if drafts else {})
    rank.sampled(r=[A])


@pytest.mark.parametrize("every", [1, 7])
def test_a_sequence_has_its_first_and_then_one_per_interval(every: int) -> None:
    one, other = ranks(every=every)
    for rank in (one, other):
        run(rank, [A] * 20)
    positions = [sent.position for sent in said(one)]
    assert positions[0] == 0
    assert 0 < positions[1] <= every
    assert {after - before for before, after in pairwise(positions[1:])} == {every}
    assert said(one) == said(other)


@pytest.mark.parametrize(
    ("tokens", "others", "drafts", "differs"),
    [
        ([A, B, C], [A, C, C], [], [False, False, True, False]),  # a token shows in the next alone
        ([A, B], [A, B], [B], [False] * 3),  # drafts by what is accepted of them
        ([A, EOS, A], [A, B, A], [], [False, False, True, True]),  # whose grammar has ended still speaks
    ],
)
def test_what_differs_is_said(
    tokens: list[int], others: list[int], drafts: list[int], differs: list[bool]
) -> None:
    one, other = ranks()
    run(one, tokens)
    run(other, others, drafts=drafts)
    assert [sent.number for sent in said(one)] == [sent.number for sent in said(other)]
    assert [a.digest != b.digest for a, b in zip(said(one), said(other), strict=True)] == differs


def test_a_failed_sequence_is_silent() -> None:
    rank, _ = ranks()
    run(rank, [A, 0, 0, 0])
    assert [sent.position for sent in said(rank)] == [0, 1]


def test_preemption_repeats_none() -> None:
    one, other = ranks()
    for rank in (one, other):
        run(rank, [A, B, C])
        ticket = rank.load("[a-c]*")
        rank.step([arrival("r", ticket, known_tokens=[1, 2, 3, A])])  # two tokens were dropped
        for token in [B] * 4:
            rank.next(r=[token])
    assert said(one) == said(other)
    assert [sent.position for sent in said(one)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("strays", [False, True])
def test_data_parallel_groups_are_never_compared(strays: bool) -> None:  # noqa: FBT001 - a case
    """Two groups of two, which know a request by the same name; a rank's word may come before its peer's."""
    every = ranks(4)
    for rank, tokens in zip(
        every, ([A, B, C], [A, B, C], [C, C, A], [C, B if strays else C, A]), strict=True
    ):
        run(rank, tokens)
    compared = agreement.Agreement(2)
    for number in (0, 2, 1, 3):
        for record in every[number].records:
            compared.receive(record)
    state = compared.state
    if strays:
        assert state.desyncs == {2: 1, 3: 1}
    else:
        assert (state.compared, state.desyncs) == (8, {})
    assert not compared._pending


@pytest.mark.parametrize("named", ["", "x" * 2000, "ä" * 5000], ids=["by vLLM", "by a client", "oddly"])
def test_what_is_due_at_once_fits_into_datagrams(named: str) -> None:
    """A client may name its request at any length."""
    sent: list[Digests] = []
    names = [f"chatcmpl-{named}{number:032x}-{number:08x}" for number in range(1024)]
    new = [SimpleNamespace(request_id=name, accepted=[], progress=Progress()) for name in names]
    Agreement(0, 32, sent.append).compare((one, None) for one in new)
    assert [digest.request_id for record in sent for digest in record.digests] == names
    assert max(len(records.encode(record)) for record in sent) < 64 << 10
