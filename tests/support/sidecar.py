"""A real sidecar started as its container starts it, and clients that speak the wire as engines do."""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import httpx
import msgspec
import psutil
from devtools.process import Process

from guided_contract import names, status, wire
from guided_contract.config import PodConfig
from guided_contract.wire import (
    Backend,
    ClientMessage,
    End,
    Hello,
    Kind,
    Load,
    Loaded,
    Prepare,
    Prepared,
    Proven,
    Refused,
    Release,
    ServiceMessage,
    Welcome,
)
from guided_sidecar import service
from support.engine import write_config
from support.waiting import until as until  # noqa: PLC0414 - what tests of a sidecar wait with

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0
_TEMPLATE = "guided_sidecar.grammar.compile.fork_server"


class Sidecar:
    """The supervisor and all that it starts."""

    def __init__(self, pod: PodConfig, process: Process) -> None:
        self.pod = pod
        self.process = process

    @classmethod
    def start(cls, pod: PodConfig, more: Mapping[str, str] | None = None) -> Self:
        """Start a sidecar for `pod` (see support.engine.pod_config) and wait for its socket."""
        ours = {names.ENV_CONFIG: str(write_config(pod)), "HF_HUB_OFFLINE": "1"}
        environment = {**os.environ, **ours, **(more or {})}
        log = Path(pod.run_dir, "sidecar.log")
        command = [sys.executable, "-m", "guided_sidecar"]
        process = Process.start("sidecar", command, log, environment=environment)
        sidecar = cls(pod, process)
        try:
            process.wait_ready(pod.service_socket.is_socket, START_TIMEOUT_S)
        except BaseException:
            sidecar.stop()
            raise
        return sidecar

    @classmethod
    @contextlib.contextmanager
    def running(cls, pod: PodConfig, more: Mapping[str, str] | None = None) -> Iterator[Self]:
        """Run a sidecar for `pod` until the body ends."""
        sidecar = cls.start(pod, more)
        try:
            yield sidecar
        finally:
            sidecar.stop()

    def stop(self) -> None:
        """Stop it, and all that it started."""
        self.process.stop()

    def page(self) -> status.PodStatus:
        """Return its status page."""
        return status.decode(self.text("/status").encode())

    def text(self, path: str) -> str:
        """Return what it answers there."""
        return httpx.get(f"http://127.0.0.1:{self.pod.ports.sidecar}{path}").text

    def log(self) -> str:
        return self.process.log.read_text()

    def service_pid(self) -> int | None:
        """Return the service's process, if there is one."""
        return next((pid for pid in self.processes() if serves(pid)), None)

    def template_pid(self) -> int | None:
        """Return the grammar template's process, if there is one."""
        return next((pid for pid in self.processes() if self._is_template(pid)), None)

    def workers(self) -> set[int]:
        """Return the grammar workers' processes."""
        return {pid for pid in self.processes() if is_grammar(pid) and not self._is_template(pid)}

    def processes(self) -> list[int]:
        """Return all of its processes, dead ones that nobody has reaped included."""
        return list(descendants(self.process.pid))

    def _is_template(self, pid: int) -> bool:
        return is_grammar(pid) and serves(psutil.Process(pid).ppid())


class Client:
    """A connection to the service's socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, pod: PodConfig) -> Self:
        return cls(*await asyncio.open_unix_connection(pod.service_socket))

    @classmethod
    async def reach(cls, pod: PodConfig) -> Self:
        """Open a connection as soon as the service takes one."""
        async with asyncio.timeout(START_TIMEOUT_S):
            while True:
                try:
                    return await cls.open(pod)
                except OSError:
                    await asyncio.sleep(0.02)

    def send(self, message: ClientMessage) -> None:
        self.writer.write(wire.frame(message))

    async def receive(self) -> ServiceMessage:
        return wire.decode_service_message(await wire.read(self.reader))

    async def greet(self, hello: Hello) -> None:
        self.send(hello)
        assert await self.receive() == Welcome()

    async def is_closed(self) -> bool:
        """Wait until the service closes the connection; False if it does not."""
        try:
            async with asyncio.timeout(10):
                while await self.reader.read(4096):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        self.writer.transport.abort()


class Peer:
    """A connection that is read for as long as it is open."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def greeted(cls, pod: PodConfig, hello: Hello, *more: Any) -> AsyncIterator[Self]:
        client = await Client.open(pod)
        await client.greet(hello)
        made = cls(client, *more)
        try:
            yield made
        finally:
            await made.close()

    async def close(self) -> None:
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        self.client.close()

    async def _read(self) -> None:
        raise NotImplementedError


class Api(Peer):
    """An API server: many prepares at once on one connection, answered when their grammars are proven.

    `early`: what it was told before. `begun_s`: when a request might begin (time.perf_counter).
    """

    def __init__(self, client: Client) -> None:
        self.early: dict[int, Prepared] = {}
        self.begun_s: dict[int, float] = {}
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Prepared | Refused]] = {}
        super().__init__(client)

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, pod: PodConfig, boot: str = "boot") -> AsyncIterator[Self]:
        hello = Hello(role="api", pid=os.getpid(), boot=boot)
        async with cls.greeted(pod, hello) as api:
            yield api

    async def prepare(
        self, kind: Kind, spec: str, timeout_s: float = ANSWER_TIMEOUT_S, **fields: Any
    ) -> Prepared | Refused:
        """Send a Prepare, and return its answer."""
        return await self.begin(kind, spec, timeout_s=timeout_s, **fields)[1]

    async def prepare_named(self, name: str, **fields: Any) -> Prepared | Refused:
        return await self._begin(name=name, **fields)[1]

    def begin(self, kind: Kind, spec: str, **fields: Any) -> tuple[int, asyncio.Future[Prepared | Refused]]:
        """Send a Prepare; return its id and its answer to come."""
        return self._begin(kind=kind, spec=spec, **fields)

    def _begin(self, **fields: Any) -> tuple[int, asyncio.Future[Prepared | Refused]]:
        number = next(self._ids)
        return number, self.ask(Prepare(id=number, **{"timeout_s": ANSWER_TIMEOUT_S, **fields}))

    def ask(self, request: Prepare) -> asyncio.Future[Prepared | Refused]:
        """Send a Prepare, with an id of the caller's choice; return its answer to come."""
        answer = self._waiting[request.id] = asyncio.get_running_loop().create_future()
        self.client.send(request)
        return answer

    def release(self, number: int) -> None:
        self.client.send(Release(id=number))

    async def _read(self) -> None:
        try:
            while True:
                message = await self.client.receive()
                if isinstance(message, End):
                    continue
                if isinstance(message, Prepared):
                    self.begun_s[message.id] = time.perf_counter()
                if isinstance(message, Prepared) and not message.is_proven:
                    self.early[message.id] = message
                    continue
                if isinstance(message, Proven):
                    early = self.early[message.id]
                    message = msgspec.structs.replace(early, backend=message.backend, is_proven=True)
                assert isinstance(message, Prepared | Refused)
                self._waiting.pop(message.id).set_result(message)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            for answer in self._waiting.values():
                answer.set_exception(ConnectionResetError(str(error)))
                answer.exception()  # seen, also if nobody waits for it


class Rank(Peer):
    """A sampling rank that answers every Load with what `answer` makes of it (None: no answer)."""

    def __init__(self, client: Client, answer: Callable[[Load], Loaded | None]) -> None:
        self.loads: list[Load] = []
        self._answer = answer
        super().__init__(client)

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(
        cls,
        pod: PodConfig,
        rank: int = 0,
        boot: str = "boot",
        answer: Callable[[Load], Loaded | None] = lambda load: loaded(load),  # noqa: PLW0108 - defined below
        tokenizer: Mapping[Backend, str] | None = None,
    ) -> AsyncIterator[Self]:
        said = dict(tokenizer or {})
        hello = Hello(role="rank", pid=os.getpid(), boot=boot, rank=rank, samples=True, tokenizer=said)
        async with cls.greeted(pod, hello, answer) as made:
            yield made

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                message = await self.client.receive()
                if isinstance(message, Load):
                    self.loads.append(message)
                    answer = self._answer(message)
                    if answer is not None:
                        self.client.send(answer)


def loaded(load: Load, error: str = "") -> Loaded:
    now = time.time_ns()
    return Loaded(key=load.key, error=error, start_ns=now - 1_000_000, end_ns=now)


async def roundtrip(pod: PodConfig) -> None:
    """Return when the service has read what was sent to it before: it has since greeted two others."""
    for _ in range(2):
        client = await Client.open(pod)
        await client.greet(Hello(role="core", pid=os.getpid(), boot="boot"))
        client.close()


class HasWorkers(Protocol):
    def workers(self) -> set[int]: ...


async def busy_worker(sidecar: HasWorkers) -> int:
    """Wait for a worker that uses its CPU, and return it; for tests with one compile under way.

    One that starts uses a little, too: what counts is what it uses after it was first seen.
    """
    before: dict[int, int] = {}
    async with asyncio.timeout(20):
        while True:
            await asyncio.sleep(0.02)
            now = {pid: cpu_ticks(pid) for pid in sidecar.workers()}
            before = now | before
            busy = [pid for pid in now if now[pid] - before[pid] >= 20]
            if busy:
                return busy[0]


def cpu_ticks(pid: int) -> int:
    """Return a process's CPU time in hundredths of a second; 0 once it has gone."""
    try:
        return int(100 * sum(psutil.Process(pid).cpu_times()[:2]))
    except psutil.Error:
        return 0


def descendants(pid: int) -> Iterator[int]:
    """Yield a process and all below it, parents first."""
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        yield from (one.pid for one in (top, *top.children(recursive=True)))


def exists(pid: int) -> bool:
    """Return whether a process is in the process table; also a dead one that was not reaped."""
    return Path(f"/proc/{pid}").exists()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def is_grammar(pid: int) -> bool:
    """Return whether a process is a grammar worker, or the one they are forked from."""
    with contextlib.suppress(psutil.Error):
        return _TEMPLATE in " ".join(psutil.Process(pid).cmdline())
    return False


def serves(pid: int) -> bool:
    """Return whether a process is a service; its command line is its supervisor's."""
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).name() == service.NAME)
    return False
