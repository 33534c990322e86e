"""The service between a worker's answers, an API server and a rank, without processes and sockets."""

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from guided_contract.wire import Hello, Load, Loaded, Prepare, ServiceMessage, Unload
from guided_sidecar.grammar.capacity import Capacity
from guided_sidecar.grammar.pool.pool import Progress
from guided_sidecar.grammar.prepare.preparer import Preparer
from guided_sidecar.grammar.worker_messages import Compiled, Done, Job, Outcome, Ready
from guided_sidecar.ranks.agreement import Agreement
from guided_sidecar.ranks.load_barrier import LoadBarrier
from guided_sidecar.settings import Settings
from guided_sidecar.socket.sessions import ApiSession, RankSession, Room
from support.engine import pod_config
from support.played import settled
from support.spans import MemorySpans

ASKED: Final = Prepare(id=1, kind="regex", spec="a", timeout_s=60)


class PlayedPool:
    """A pool whose one compile is played by the test."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.ended = 0
        self.may_die = asyncio.Event()  # a worker that is killed takes until then
        self.may_die.set()
        self.progress: Progress | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def facts(self) -> Ready:
        return Ready(tokenizer={}, vocab_size=8, versions={}, resident_bytes=1)

    async def compile(self, job: Job, progress: Progress) -> Outcome:
        self.jobs.append(job)
        self.progress = progress
        self.outcome = asyncio.get_running_loop().create_future()
        progress.start()
        try:
            return await self.outcome
        finally:
            await self.may_die.wait()
            self.ended += 1

    async def compiled(self, done: Done) -> None:
        assert self.progress is not None
        self.progress.tell(Compiled(done=done))
        await settled()

    async def ends(self, outcome: Outcome) -> None:
        self.outcome.set_result(outcome)
        await settled()


@dataclasses.dataclass
class KeptPeer:
    """A connection that keeps what is sent; a rank's `answer` makes a reply of it."""

    hello: Hello
    answer: Callable[[ServiceMessage], Loaded | None] = lambda _message: None
    sent: list[ServiceMessage] = dataclasses.field(default_factory=list)
    session: Any = None

    def send(self, message: ServiceMessage) -> None:
        self.sent.append(message)
        if (reply := self.answer(message)) is not None:
            asyncio.get_running_loop().call_soon(self.session.receive, reply)


class PlayedService:
    """One service, an API server and a rank."""

    def __init__(self, folder: Path) -> None:
        self.pod = pod_config(folder)
        settings = Settings(pod=self.pod)
        self.spans = MemorySpans()
        self.pool = PlayedPool()
        self.load_barrier = LoadBarrier(1, lambda *_: None)
        pool: Any = self.pool
        self.preparer = Preparer(settings, Capacity(1, 1), pool, self.load_barrier, self.spans.tracer)
        self.agreement = Agreement(1)
        self.api = self.connect_api()
        self.rank = KeptPeer(
            Hello(role="rank", pid=1, boot="b", rank=0, samples=True),
            lambda sent: Loaded(key=sent.key) if isinstance(sent, Load) else None,
        )
        self.rank.session = RankSession(self.rank, 0, self.load_barrier, self.agreement, self.preparer)

    def connect_api(self) -> KeptPeer:
        api = KeptPeer(Hello(role="api", pid=1, boot="b"))
        named: Any = None
        api.session = ApiSession(api, self.preparer, named, Room(1 << 20), self.agreement)
        return api

    async def asks(self, number: int = 1, api: KeptPeer | None = None) -> None:
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
                held[message.key] = message.spec
            elif isinstance(message, Unload):
                del held[message.key]
        return list(held.values())
