"""A grammar between compiled and proven: who may begin with it, and what is left of one that is refused."""

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import (
    Failed,
    Hello,
    Load,
    Loaded,
    Prepare,
    Prepared,
    Proven,
    Refused,
    Release,
    ServiceMessage,
    Unload,
)
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.capacity import Capacity
from guided_sidecar.grammar.pool.compile_progress import CompileProgress
from guided_sidecar.grammar.prepare.disk import GrammarDisk
from guided_sidecar.grammar.prepare.preparer import Preparer
from guided_sidecar.grammar.worker_messages import Compiled, Done, Job, Outcome, Ready
from guided_sidecar.ranks.agreement import Consensus
from guided_sidecar.ranks.load_barrier import Rendezvous
from guided_sidecar.settings import Settings
from guided_sidecar.socket.sessions import ApiSession, RankSession, Room
from support.digests import UnheardDesyncs
from support.engine import pod_config
from support.played import settled
from support.spans import MemorySpans, error_code

FIRST = Done(backend="xgrammar", spec="first")
OTHER = Done(backend="guidance", spec="other")
REFUSAL = worker_messages.refusal(GuidedError(ErrorCode.GRAMMAR_DEAD_END, "$: no way out", path="$"))
ASKED = Prepare(id=1, kind="regex", spec="a", timeout_s=60)


class Pool:
    """A pool whose one compile is played by the test."""

    exhausted_for_s = 0.0

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.ended = 0
        self.progress: CompileProgress | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def facts(self) -> Ready:
        return Ready(tokenizer={}, vocab_size=8, versions={}, resident_bytes=1)

    async def compile(self, job: Job, progress: CompileProgress) -> Outcome:
        self.jobs.append(job)
        self.progress = progress
        self.outcome = asyncio.get_running_loop().create_future()
        progress.start(lambda: 0.0)
        try:
            return await self.outcome
        finally:
            self.ended += 1

    async def compiled(self, done: Done, *, is_draft: bool = False) -> None:
        assert self.progress is not None
        self.progress.tell(Compiled(done=done, is_draft=is_draft))
        await settled()

    async def ends(self, outcome: Outcome) -> None:
        self.outcome.set_result(outcome)
        await settled()


@dataclasses.dataclass
class Peer:
    """A connection that keeps what is sent; a rank's `answer` makes a reply of it."""

    hello: Hello
    answer: Callable[[ServiceMessage], Loaded | None] = lambda _message: None
    sent: list[ServiceMessage] = dataclasses.field(default_factory=list)
    session: Any = None

    def send(self, message: ServiceMessage) -> None:
        self.sent.append(message)
        if (reply := self.answer(message)) is not None:
            asyncio.get_running_loop().call_soon(self.session.receive, reply)


class Service:
    """The parts between a worker's answers, an API server and a rank, without processes and sockets."""

    def __init__(self, folder: Path) -> None:
        self.pod = pod_config(folder)
        self.pod.grammars_folder.mkdir()
        settings = Settings(pod=self.pod)
        self.spans = MemorySpans()
        self.pool = Pool()
        self.rendezvous = Rendezvous(1, lambda *_: None)
        disk = GrammarDisk(None, 1, 1, self.pod.grammars_folder)
        pool: Any = self.pool
        self.preparer = Preparer(settings, Capacity(1, 1), pool, disk, self.rendezvous, self.spans.tracer)
        self.consensus = Consensus(self.pod.guided_decoding, 1, UnheardDesyncs())
        self.api = self.connect_api()
        self.rank = Peer(
            Hello(role="rank", pid=1, boot="b", rank=0, samples=True),
            lambda sent: Loaded(key=sent.key) if isinstance(sent, Load) else None,
        )
        self.rank.session = RankSession(
            self.rank, 0, self.rendezvous, self.consensus, self.preparer, self.pod.grammars_folder
        )

    def connect_api(self) -> Peer:
        api = Peer(Hello(role="api", pid=1, boot="b"))
        named: Any = None
        api.session = ApiSession(api, self.preparer, named, Room(1 << 20), self.consensus)
        return api

    async def asks(self, number: int = 1, api: Peer | None = None) -> None:
        (api or self.api).session.receive(msgspec.structs.replace(ASKED, id=number))
        await settled()

    @property
    def key(self) -> str:
        return self.pool.jobs[-1].key

    def loaded(self) -> list[str | None]:
        """Return the texts that the rank holds now."""
        held: dict[str, str | None] = {}
        for message in self.rank.sent:
            if isinstance(message, Load):
                held[message.key] = message.spec or message.artifact
            elif isinstance(message, Unload):
                del held[message.key]
        return list(held.values())


@pytest.fixture
async def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


def early(number: int, service: Service, backend: Any = "xgrammar") -> Prepared:
    return Prepared(id=number, key=service.key, backend=backend, is_proven=False)


async def test_a_request_may_begin_when_ranks_have_loaded_and_is_told_of_the_proof(service: Service) -> None:
    await service.asks()
    await service.pool.compiled(FIRST)
    assert service.api.sent == [early(1, service)]
    await service.pool.ends(FIRST)
    assert service.api.sent[1:] == [Proven(id=1, backend="xgrammar")]
    assert len(service.rank.sent) == 1, "what is loaded already is not loaded again"
    assert service.preparer.state.leases == 1 + 1  # the flight's own, for a second


async def test_others_join_before_the_proof_and_nobody_gets_it_from_the_cache(service: Service) -> None:
    await service.asks(1)
    await service.pool.compiled(FIRST)
    other = service.connect_api()
    await service.asks(5, other)
    assert other.sent == [early(5, service)]
    assert service.preparer.state.entries == 0
    await service.pool.ends(FIRST)
    assert (service.api.sent[-1], other.sent[-1]) == (
        Proven(id=1, backend="xgrammar"),
        Proven(id=5, backend="xgrammar"),
    )
    await service.asks(6, other)
    assert other.sent[-1] == Prepared(id=6, key=service.key, backend="xgrammar")
    assert len(service.pool.jobs) == 1


async def test_a_proof_that_refuses_takes_the_grammar_back_from_ranks(service: Service) -> None:
    await service.asks()
    artifact = Done(backend="xgrammar", artifact=service.key, sha256="0" * 64)
    (service.pod.grammars_folder / service.key).write_bytes(b"compiled")
    await service.pool.compiled(artifact)
    assert service.api.sent == [early(1, service)]
    await service.pool.ends(REFUSAL)
    assert isinstance(refused := service.api.sent[-1], Refused)
    assert (refused.code, refused.path) == ("grammar_dead_end", "$")
    assert not service.loaded()
    assert not list(service.pod.grammars_folder.iterdir())
    state = service.preparer.state
    assert (state.entries, state.leases) == (0, 0)
    await service.asks(2)
    assert isinstance(service.api.sent[-1], Refused)
    assert len(service.pool.jobs) == 1, "a refusal is remembered"
    assert error_code(service.spans.named("grammar.prepare")[0]) == "grammar_dead_end"


async def test_another_library_takes_the_place_of_one_that_the_proof_refused(service: Service) -> None:
    await service.asks(1)
    await service.pool.compiled(FIRST)
    await service.pool.compiled(OTHER)
    await service.asks(2)
    assert service.api.sent == [early(1, service), early(2, service, "guidance")]
    assert service.loaded() == ["other"]
    await service.pool.ends(OTHER)
    assert service.api.sent[2:] == [Proven(id=1, backend="guidance"), Proven(id=2, backend="guidance")]
    assert service.loaded() == ["other"]


async def test_one_that_compiles_again_after_a_crash_is_loaded_once(service: Service) -> None:
    await service.asks()
    await service.pool.compiled(FIRST)
    await service.pool.compiled(msgspec.structs.replace(FIRST, compile_ns=7))
    await service.pool.ends(FIRST)
    assert len(service.rank.sent) == 1


@pytest.mark.parametrize(
    "leaves", [lambda api: api.session.receive(Release(id=1)), lambda api: api.session.closed()]
)
async def test_the_last_who_leaves_before_the_proof_ends_it(service: Service, leaves: Any) -> None:
    await service.asks()
    await service.pool.compiled(FIRST)
    leaves(service.api)
    await settled()
    assert service.pool.ended == 1
    assert not service.loaded()
    state = service.preparer.state
    assert (state.entries, state.leases) == (0, 0)
    # And whoever asks anew gets a flight of its own.
    other = service.connect_api()
    await service.asks(1, other)
    await service.pool.compiled(FIRST)
    await service.pool.ends(FIRST)
    assert other.sent == [early(1, service), Proven(id=1, backend="xgrammar")]
    assert service.loaded() == ["first"]


async def test_a_given_up_flight_takes_nothing_from_the_next_of_its_key(service: Service) -> None:
    """Its worker takes a while to die, and may still say something."""
    await service.asks()
    await service.pool.compiled(FIRST)
    late = service.pool.progress
    assert late is not None
    service.api.session.receive(Release(id=1))
    other = service.connect_api()
    other.session.receive(ASKED)
    await settled()
    await service.pool.compiled(OTHER)
    late.tell(Compiled(done=FIRST))
    await settled()
    assert service.loaded() == ["other"]
    await service.pool.ends(OTHER)
    assert other.sent == [early(1, service, "guidance"), Proven(id=1, backend="guidance")]
    assert service.loaded() == ["other"]


async def test_a_rank_that_cannot_load_it_is_asked_again_when_it_is_proven(service: Service) -> None:
    errors = ["no room", ""]
    service.rank.answer = lambda sent: (
        Loaded(key=sent.key, error=errors.pop(0)) if isinstance(sent, Load) else None
    )
    await service.asks()
    await service.pool.compiled(FIRST)
    assert not service.api.sent
    await service.pool.ends(FIRST)
    assert service.api.sent == [Prepared(id=1, key=service.key, backend="xgrammar")]


async def test_a_rank_that_finds_it_slow_before_the_proof_is_believed(service: Service) -> None:
    await service.asks()
    await service.pool.compiled(FIRST)
    service.rank.session.receive(Failed(request_id="r", code="sequence_slow", key=service.key))
    await service.pool.ends(FIRST)
    await service.asks(2)
    assert isinstance(refused := service.api.sent[-1], Refused)
    assert refused.code == "grammar_slow"


async def test_a_draft_is_loaded_while_it_is_compiled_and_nobody_begins_with_it(service: Service) -> None:
    await service.asks()
    await service.pool.compiled(OTHER, is_draft=True)
    assert [message.is_draft for message in service.rank.sent if isinstance(message, Load)] == [True]
    assert not service.api.sent
    await service.pool.compiled(OTHER)
    assert service.api.sent == [early(1, service, "guidance")]
    await service.pool.ends(OTHER)
    assert service.api.sent[1:] == [Proven(id=1, backend="guidance")]
    assert len(service.rank.sent) == 1


async def test_a_draft_that_a_rank_does_not_take_is_loaded_once_it_is_compiled(service: Service) -> None:
    """Its limits are tight there; without them the same text may well be taken."""
    service.rank.answer = lambda sent: (
        Loaded(key=sent.key, error="too much" if sent.is_draft else "") if isinstance(sent, Load) else None
    )
    await service.asks()
    await service.pool.compiled(OTHER, is_draft=True)
    await service.pool.compiled(OTHER)
    assert service.api.sent == [early(1, service, "guidance")]
    assert [message.is_draft for message in service.rank.sent if isinstance(message, Load)] == [True, False]


async def test_a_draft_that_is_not_taken_after_all_else_is_done_is_loaded_then(service: Service) -> None:
    """Its rank is slower than the worker, and there may be no proof to wait for."""
    service.rank.answer = lambda _sent: None
    await service.asks()
    await service.pool.compiled(OTHER, is_draft=True)
    await service.pool.ends(OTHER)
    service.rank.answer = lambda sent: Loaded(key=sent.key) if isinstance(sent, Load) else None
    service.rank.session.receive(Loaded(key=service.key, error="too much"))
    await settled()
    assert service.api.sent == [Prepared(id=1, key=service.key, backend="guidance")]


@pytest.mark.parametrize("end", [REFUSAL, FIRST])
async def test_a_draft_that_comes_to_nothing_is_unloaded(service: Service, end: Outcome) -> None:
    """No library takes it, or another one does."""
    await service.asks()
    await service.pool.compiled(OTHER, is_draft=True)
    if isinstance(end, Done):
        await service.pool.compiled(end)
    await service.pool.ends(end)
    assert service.loaded() == ([] if end is REFUSAL else ["first"])
