"""What a peer may send on the service's stream socket: the real server and sessions, without a socket.

After each input the service must serve others, and have nothing left of the peer.
"""

import asyncio
import os
import random
import struct
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from guided_contract import wire
from guided_contract.config import PodConfig
from guided_contract.wire import (
    Failed,
    Hello,
    Load,
    Loaded,
    Patch,
    Prepare,
    Prepared,
    Refused,
    Release,
    ServiceMessage,
)
from guided_sidecar.grammar.pool.pool import Progress
from guided_sidecar.grammar.prepare.jobs import job_of
from guided_sidecar.grammar.worker_messages import Done, Job, Ready
from guided_sidecar.ranks.agreement import Agreement
from guided_sidecar.settings import Settings
from guided_sidecar.socket import grammar_service
from guided_sidecar.socket.grammar_service import GrammarService
from support.fuzz import mutation
from support.fuzz.target import Target, end_all
from support.spans import MemorySpans

POD: Final = PodConfig(name="f", model="m", tokenizer="m", served_name="f", run_dir="/nowhere")
API: Final = Hello(role="api", pid=1, boot="b")
RANK: Final = Hello(role="rank", pid=2, boot="b", rank=0, samples=True)
SCHEMA: Final = '{"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}}'
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# Asked for by another peer meanwhile; the key is what a rank is asked to load.
PENDING: Final = Prepare(id=5, kind="choice", spec='["pending"]', timeout_s=5.0, traceparent=TRACE)
FACTS: Final = Ready(tokenizer={"xgrammar": "t"}, vocab_size=8, versions={}, resident_bytes=0)
_DEADLINE_S: Final = 30.0


def target() -> Target:
    """Return the target."""
    sidecar = _Sidecar()
    return Target(seeds(), mutation.either(_one_frame), sidecar.run, sidecar.close)


def seeds() -> list[bytes]:
    """Return what each role says on its connection."""
    hellos = [
        API,
        RANK,
        Hello(role="launcher", pid=3, boot="b", versions={"vllm": "0.32.0"}, unsupported="0.1"),
        Hello(role="core", pid=4, boot="b", patches=[Patch(name="p", state="Applied", reason="r")]),
        Hello(role="rank", pid=5, boot="b", rank=1),
        Hello(role="api", pid=1, boot="b"),
    ]
    asked = [
        Prepare(id=1, kind="json", spec=SCHEMA, timeout_s=1.0, backend="guidance", traceparent=TRACE),
        Prepare(id=2, kind="choice", spec='["a", "b"]', timeout_s=1.0),
        Prepare(id=3, kind="json_object", spec="", timeout_s=1.0),
        Prepare(id=4, name="card", timeout_s=1.0, backend="xgrammar", traceparent=TRACE),
        Release(id=1),
        Release(id=9),
    ]
    key = _key(PENDING)
    said = [
        Loaded(key=key, start_ns=1, end_ns=2),
        Loaded(key=key, error="no"),
        Failed(request_id="r", code="sequence_dead_end"),
    ]
    return [
        *(wire.frame(hello) for hello in hellos),
        stream(API, *asked),
        stream(RANK, *said),
    ]


def _key(asked: Prepare) -> str:
    return job_of(asked, POD, FACTS).key


def stream(*messages: wire.ClientMessage) -> bytes:
    return b"".join(map(wire.frame, messages))


def _one_frame(data: bytes, chance: random.Random) -> bytes:
    """Change one value in one of the frames."""
    frames = _split(data)
    place = chance.randrange(len(frames))
    frames[place] = mutation.msgpack_value(frames[place], chance)
    if chance.random() < 0.2:
        frames.insert(chance.randrange(len(frames) + 1), chance.choice(frames))
    return b"".join(wire.LENGTH.pack(len(body)) + body for body in frames)


def _split(data: bytes) -> list[bytes]:
    frames = []
    while len(data) >= wire.LENGTH.size:
        (length,) = wire.LENGTH.unpack_from(data)
        frames.append(data[wire.LENGTH.size : wire.LENGTH.size + length])
        data = data[wire.LENGTH.size + length :]
    return [*frames, data] if data or not frames else frames


class _InstantPool:
    """Compiles everything at once, to nothing."""

    def __init__(self, *_arguments: object) -> None:
        pass

    async def facts(self) -> Ready:
        return FACTS

    async def compile(self, job: Job, progress: Progress) -> Done:
        progress.start()
        await asyncio.sleep(0)
        return Done(backend=job.backends[-1], spec=job.spec, size_bytes=len(job.spec))


class _Sidecar:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, context: self._unhandled.append(context))
        self._unhandled: list[dict[str, Any]] = []

    def close(self) -> None:
        self._loop.close()

    def run(self, data: bytes) -> None:
        self._unhandled.clear()
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._met(data), _DEADLINE_S))
        finally:
            self._loop.run_until_complete(end_all())
        assert not self._unhandled, self._unhandled[0]

    async def _met(self, data: bytes) -> None:
        real, grammar_service.Pool = grammar_service.Pool, _InstantPool  # type: ignore[assignment,misc]
        try:
            spans, agreement = MemorySpans(), Agreement(1)
            service = GrammarService(Settings(POD), spans.tracer, agreement)
        finally:
            grammar_service.Pool = real  # type: ignore[misc]
        witness = _Link(service, stream(API, PENDING))
        while not service._preparer.state.leases:  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0)
        bad = _Link(service, data)
        bad.end()
        await bad.gone()
        assert len(bad.received) <= 4 * len(data) + 64, "the peer got more answers than it asked for"
        assert service.snapshot().hellos == (API,), "the peer is still there"
        await self._serves(service, witness)
        assert all(0 <= span.start_time <= span.end_time + (1 << 62) < 1 << 63 for span in spans.finished)
        witness.end()
        await witness.gone()
        assert service.snapshot().hellos == ()

    async def _serves(self, service: GrammarService, api: "_Link") -> None:
        rank = _Link(service, wire.frame(RANK), _load)
        api.say(Prepare(id=7, kind="regex", spec="a witness", timeout_s=_DEADLINE_S))
        assert isinstance(await api.answer(7), Prepared)
        await api.answer(PENDING.id)
        api.say(Release(id=7))
        rank.end()
        await rank.gone()


def _load(message: ServiceMessage) -> wire.ClientMessage | None:
    return Loaded(key=message.key, start_ns=time.time_ns()) if isinstance(message, Load) else None


class _Link:
    """A peer without a socket; its messages are there at once."""

    def __init__(
        self,
        service: GrammarService,
        data: bytes,
        answer: Callable[[ServiceMessage], wire.ClientMessage | None] = lambda _message: None,
    ) -> None:
        self.received: list[ServiceMessage] = []
        self.transport = self
        self._answer = answer
        self._reader = asyncio.StreamReader()
        self._closed = False
        self._changed = asyncio.Event()
        self._reader.feed_data(data)
        writer: Any = self
        self._task = asyncio.create_task(service._server.accept(self._reader, writer))

    def say(self, message: wire.ClientMessage) -> None:
        self._reader.feed_data(wire.frame(message))

    def end(self) -> None:
        self._reader.feed_eof()

    async def gone(self) -> None:
        await self._task
        assert self._closed

    async def answer(self, number: int) -> Prepared | Refused:
        while True:
            for one in self.received:
                if isinstance(one, Prepared | Refused) and one.id == number:
                    return one
            self._changed.clear()
            await self._changed.wait()

    # The writer and its transport, as the server sees them.

    def write(self, data: bytes) -> None:
        message = wire.decode_service_message(data[wire.LENGTH.size :])
        self.received.append(message)
        self._changed.set()
        if (reply := self._answer(message)) is not None:
            self.say(reply)

    async def drain(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closed

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self._closed = True
        self._reader.feed_eof()

    def get_extra_info(self, _name: str) -> Any:
        credentials = struct.pack("3i", 1, os.geteuid(), 1)
        return SimpleNamespace(getsockopt=lambda *_: credentials)
