"""Where ranks agree: who is waited for, and what is said of a rank that is late, gone, back or broken."""

import asyncio

import pytest
from opentelemetry.context import Context

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Hello, Load, Loaded, ServiceMessage, Unload
from guided_sidecar.ranks.load_barrier import LoadBarrier
from support.played import settled

LOAD = Load(key="k", backend="guidance", spec="")
TOKENIZER: dict[Backend, str] = {"xgrammar": "x", "guidance": "g"}
Waiting = asyncio.Task[None]
LATE = ("grammar_rank_late", "rank 1 is slow: the grammar was not loaded within 3 s")
GONE = ("grammar_rank_gone", "rank 1 is disconnected and did not reconnect within 3 s")


class Link:
    """A rank's connection that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[ServiceMessage] = []

    def send(self, message: ServiceMessage) -> None:
        self.sent.append(message)


class Ranks:
    """A load barrier with its ranks' newest connections."""

    def __init__(self, expected: int, *connected: int) -> None:
        self.answered: list[int] = []
        self.load_barrier = LoadBarrier(expected, lambda rank, *_: self.answered.append(rank))
        self.links: dict[int, Link] = {}
        for rank in connected:
            self.connect(rank)

    def connect(self, rank: int, boot: str = "one", tokenizer: dict[Backend, str] | None = None) -> Link:
        link = self.links[rank] = Link()
        hello = Hello(role="rank", pid=1, boot=boot, rank=rank, samples=True, tokenizer=tokenizer or {})
        self.load_barrier.connect(rank, link, hello)
        return link

    def disconnect(self, rank: int) -> None:
        self.load_barrier.disconnect(rank, self.links[rank])

    def answer(self, *ranks: int, error: str = "", link: Link | None = None) -> None:
        for rank in ranks:
            self.load_barrier.answer(rank, link or self.links[rank], Loaded(key="k", error=error))

    async def ensure(self) -> Waiting:
        """Begin to wait for the grammar."""
        task = asyncio.create_task(self.load_barrier.ensure(LOAD, TOKENIZER, Context()))
        await asyncio.sleep(0)
        return task

    async def load(self, *answering: int) -> None:
        """Wait for the grammar, with answers of some ranks."""
        waiting = await self.ensure()
        self.answer(*answering)
        await asyncio.wait_for(waiting, 1)

    async def too_late(self, waiting: Waiting) -> tuple[ErrorCode, str]:
        """Let the one who waits run out of time; return what it is told."""
        await settled()
        assert not waiting.done()
        waiting.cancel()
        error = self.load_barrier.too_late("k", "3 s")
        assert (error.code.http_status, error.retry_after_s) == (503, 1)
        return error.code, error.message


async def test_every_expected_rank_must_have_loaded() -> None:
    ranks = Ranks(2, 0)
    waiting = await ranks.ensure()
    ranks.answer(0)
    await settled()
    assert not waiting.done()
    assert ranks.connect(1).sent == [LOAD]
    ranks.answer(1)
    await asyncio.wait_for(waiting, 1)
    assert ranks.answered == [0, 1]


async def test_a_rank_that_was_never_there() -> None:
    ranks = Ranks(3, 1)
    waiting = await ranks.ensure()
    ranks.answer(1)
    said = await ranks.too_late(waiting)
    assert said == ("grammar_ranks_not_ready", "ranks 0, 2 are not connected after 3 s")


@pytest.mark.parametrize(("goes", "said"), [("never", LATE), ("before", GONE), ("meanwhile", GONE)])
async def test_a_rank_that_is_late_or_goes(goes: str, said: tuple[str, str]) -> None:
    ranks = Ranks(2, 0, 1)
    if goes == "before":
        ranks.disconnect(1)
    waiting = await ranks.ensure()
    if goes == "meanwhile":
        ranks.disconnect(1)
    ranks.answer(0)
    assert await ranks.too_late(waiting) == said
    if goes == "never":
        ranks.answer(1)
        await ranks.load()
        assert ranks.links[1].sent == [LOAD], "its first answer counts, late as it was"


async def test_a_rank_that_comes_back_in_the_middle_of_a_load_is_waited_for() -> None:
    ranks = Ranks(2, 0, 1)
    waiting = await ranks.ensure()
    ranks.answer(0)
    old = ranks.links[1]
    ranks.disconnect(1)
    assert ranks.connect(1).sent == [LOAD]
    ranks.answer(1, link=old)
    assert await ranks.too_late(waiting) == LATE
    await ranks.load(1)
    assert ranks.links[1].sent == [LOAD]


async def test_ranks_of_an_engine_start_before_do_not_count() -> None:
    """Its processes die one by one; a grammar on those that are left helps nobody."""
    ranks = Ranks(2, 0, 1)
    waiting = await ranks.ensure()
    ranks.answer(0)
    dying = ranks.links[1]
    ranks.connect(0, boot="two")
    ranks.answer(0)
    ranks.answer(1, link=dying)
    assert await ranks.too_late(waiting) == GONE
    again = await ranks.ensure()
    ranks.connect(1, boot="two")
    ranks.load_barrier.disconnect(1, dying)
    ranks.answer(1)
    await asyncio.wait_for(again, 1)


async def test_a_failure_on_one_rank_is_told_to_all_who_wait_and_the_next_call_asks_that_rank_again() -> None:
    ranks = Ranks(2, 0, 1)
    waiting = [await ranks.ensure() for _ in range(3)]
    ranks.answer(0)
    ranks.answer(1, error="damaged")
    for task in waiting:
        with pytest.raises(GuidedError, match="rank 1: damaged") as raised:
            await asyncio.wait_for(task, 1)
        assert raised.value.code is ErrorCode.GRAMMAR_LOAD_FAILED
    await ranks.load(1)
    assert [ranks.links[rank].sent for rank in range(2)] == [[LOAD], [LOAD, LOAD]]


async def test_what_rests_is_not_pushed_and_what_is_forgotten_is_unloaded() -> None:
    ranks = Ranks(1, 0)
    await ranks.load(0)
    ranks.load_barrier.rest("k")
    back = ranks.connect(0)
    ranks.load_barrier.forget("k")
    assert back.sent == []
    await ranks.load(0)
    ranks.load_barrier.forget("k")
    assert back.sent == [LOAD, Unload(key="k")]


async def test_an_answer_to_a_load_that_was_taken_back_does_not_count_for_the_next() -> None:
    """Its rank unloads the grammar right after that answer, and loads it anew only then."""
    ranks = Ranks(1, 0)
    waiting = await ranks.ensure()
    waiting.cancel()
    ranks.load_barrier.forget("k")
    again = await ranks.ensure()
    assert ranks.links[0].sent == [LOAD, Unload(key="k"), LOAD]
    ranks.answer(0)
    await settled()
    assert not again.done()
    ranks.answer(0)
    await asyncio.wait_for(again, 1)


@pytest.mark.parametrize("other", [{"xgrammar": "y", "guidance": "g"}, {"guidance": "h"}])
async def test_a_rank_with_another_tokenizer_is_sent_nothing(other: dict[Backend, str]) -> None:
    ranks = Ranks(2, 0)
    waiting = await ranks.ensure()
    link = ranks.connect(1, tokenizer=other)
    with pytest.raises(GuidedError, match="rank 1 is using a different tokenizer") as raised:
        await waiting
    assert raised.value.code is ErrorCode.GRAMMAR_TOKENIZERS_DIFFER
    with pytest.raises(GuidedError, match="a different tokenizer"):
        ranks.load_barrier.check(TOKENIZER)
    assert not link.sent
    for like_ours in (TOKENIZER, {"xgrammar": "x"}, {}):  # what it does not say is no difference
        ranks.connect(1, tokenizer=like_ours)  # type: ignore[arg-type]
        ranks.load_barrier.check(TOKENIZER)
    await ranks.load(0, 1)
