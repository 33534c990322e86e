"""The service's side of the template and its workers: start, use, kill, and know that they are gone."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

from guided_contract import wire
from guided_contract.errors import MALFORMED
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.worker_errors import WorkerDiedError
from guided_sidecar.grammar.worker_messages import (
    Compiled,
    Forked,
    FromTemplate,
    FromWorker,
    Job,
    Outcome,
    Ready,
)

_TEMPLATE: Final = "guided_sidecar.grammar.compile.fork_server"
_FDS_PER_WORKER: Final = 3
_LAST_WORDS_BYTES: Final = 4096
_GONE_DEADLINE_S: Final = 5.0  # SIGKILL takes milliseconds; longer means a process stuck in the kernel
# One thread each and few arenas: address space is what a worker's memory limit counts.
_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "RUST_LIB_BACKTRACE": "0",  # of errors that llguidance makes as it goes: half of a compile's time
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}


class TemplateDiedError(Exception):
    """The template process ended, and its workers with it."""


class Worker:
    """One worker process, whose parent is the template.

    Its pidfd kills it and nobody who got its number later, and tells when it has ended: `gone` is set then,
    `last_words` are what it wrote to standard error, and `on_exit` is called.
    """

    def __init__(
        self,
        pid: int,
        on_exit: Callable[["Worker"], None],
        stream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        pidfd: int,
        stderr: int,
    ) -> None:
        self.pid = pid
        self.gone = asyncio.Event()
        self.last_words = ""
        self._on_exit = on_exit
        self._reader, self._writer = stream
        self._pidfd = pidfd
        self._stderr = stderr
        asyncio.get_running_loop().add_reader(pidfd, self._ended)

    async def run(self, job: Job, tell: Callable[[Compiled], None] = lambda _: None) -> Outcome:
        """Have the worker do a job, and tell what it says meanwhile. If cancelled, it must be killed.

        WorkerDiedError: it ended without an answer, or answered with nonsense.
        """
        try:
            self._writer.write(wire.frame(job))
            while isinstance(said := await self._answer(), Compiled):
                tell(said)
        except (OSError, EOFError, wire.WireError, *MALFORMED) as error:
            await self.kill()
            raise WorkerDiedError(self.last_words) from error
        return said

    async def _answer(self) -> FromWorker:
        return worker_messages.decode_from_worker(await wire.read(self._reader))

    async def kill(self) -> None:
        """Kill the process, and wait until it is gone."""
        if not self.gone.is_set():
            with contextlib.suppress(ProcessLookupError):  # it was faster
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        # Nowhere asyncio.wait_for: before Python 3.12 it forgets a cancellation that meets the answer.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_DEADLINE_S):
                await self.gone.wait()

    def _ended(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        size = os.fstat(self._stderr).st_size
        last = os.pread(self._stderr, _LAST_WORDS_BYTES, max(0, size - _LAST_WORDS_BYTES))
        self.last_words = last.decode(errors="replace")
        self.gone.set()
        os.close(self._pidfd)
        os.close(self._stderr)
        loop.call_soon(self._on_exit, self)  # once it is seen, too, where the template ended before it

    def close(self) -> None:
        """Close the stream, after the last use: what a worker said can be read when it has ended."""
        self._writer.transport.abort()


class Template:
    """The template process; `on_exit` is called for each worker that has ended."""

    def __init__(self, on_exit: Callable[[Worker], None]) -> None:
        self._on_exit = on_exit
        self._workers: set[Worker] = set()
        self._process: asyncio.subprocess.Process | None = None
        self._control, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)

    async def start(self, timeout_s: float) -> Ready:
        """Start the process and wait until it has read the tokenizer.

        TemplateDiedError: it ended or was not ready in time; its own words are on our standard error.
        """
        with self._theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _TEMPLATE, str(self._theirs.fileno())),
                pass_fds=[self._theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT},
                stdin=asyncio.subprocess.DEVNULL,
            )
        ready, _ = await self._answered(timeout_s)
        assert isinstance(ready, Ready)
        return ready

    async def fork(self, timeout_s: float) -> Worker:
        """Make one worker, one after the other; TemplateDiedError: the template is gone or silent."""
        with contextlib.suppress(OSError):  # gone; that is about to be read
            self._control.send(worker_messages.FORK)
        forked, descriptors = await self._answered(timeout_s)
        assert isinstance(forked, Forked)
        stream, pidfd, stderr = descriptors
        streams = await asyncio.open_unix_connection(sock=socket.socket(fileno=stream))
        worker = Worker(forked.pid, self._ended, streams, pidfd, stderr)
        self._workers.add(worker)
        return worker

    async def stop(self) -> None:
        """Kill the template, and so its workers, and wait until all are gone."""
        self._control.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it was faster
                self._process.kill()
            await self._process.wait()
        for worker in [*self._workers]:
            await worker.kill()
            worker.close()

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended; its workers end after it."""
        try:
            return not self._control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def _answered(self, timeout_s: float) -> tuple[FromTemplate, list[int]]:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._control, readable.set)
        packet, descriptors = b"", list[int]()
        try:
            with contextlib.suppress(OSError):  # too late too: TimeoutError
                async with asyncio.timeout(timeout_s):
                    await readable.wait()
                packet, descriptors, _, _ = socket.recv_fds(
                    self._control, worker_messages.MAX_PACKET_BYTES, _FDS_PER_WORKER
                )
        finally:
            loop.remove_reader(self._control)
        if not packet:
            is_silent = not readable.is_set()
            await self.stop()
            raise TemplateDiedError(f"no answer after {timeout_s:g} s" if is_silent else "the process ended")
        return worker_messages.decode_from_template(packet), descriptors

    def _ended(self, worker: Worker) -> None:
        self._workers.discard(worker)
        self._on_exit(worker)
