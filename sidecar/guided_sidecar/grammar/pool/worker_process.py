"""The service's side of the template and its workers: start, use, kill, and know that they are gone."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, Self

from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.worker_errors import WorkerDiedError
from guided_sidecar.grammar.worker_messages import Exited, Forked, Job, Meanwhile, Outcome, Ready

_log = logging.getLogger(__name__)
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

    Its pidfd kills it and nobody who got its number later; `gone` is set when the template has reaped it.
    """

    def __init__(self, pid: int, stream: socket.socket, pidfd: int, stderr: int) -> None:
        self.pid = pid
        self.gone = asyncio.Event()
        self._status: int | None = None
        self._socket = stream
        self._pidfd = pidfd
        self._stderr = stderr
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> Self:
        """Connect the stream; before the first job."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        return self

    async def run(self, job: Job, tell: Callable[[Meanwhile], None] = lambda _: None) -> Outcome:
        """Have the worker do a job, and tell what it says meanwhile. If cancelled, it must be killed.

        Raises
        ------
        WorkerDiedError
            It ended without an answer, or answered with nonsense.
        """
        if self._reader is None or self._writer is None:
            raise WorkerDiedError(None, "not opened", had_begun=False)
        try:
            self._writer.write(worker_messages.frame(job))
            await self._writer.drain()
            while True:
                said = await worker_messages.read_answer(self._reader, job.key)
                if not isinstance(said, Meanwhile):
                    return said
                tell(said)
        except (OSError, asyncio.IncompleteReadError, worker_messages.JobError) as error:
            await self.kill()
            # The kernel resets a stream whose other end has gone and left something unread.
            had_begun = not isinstance(error, ConnectionError)
            raise WorkerDiedError(self._status, self._last_words(), had_begun=had_begun) from error

    async def kill(self) -> None:
        """Kill the process, wait until it is reaped, and close what belongs to it."""
        with contextlib.suppress(OSError):  # it was faster
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        # Nowhere asyncio.wait_for: before Python 3.12 it forgets a cancellation that meets the answer.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_DEADLINE_S):
                await self.gone.wait()

    def reaped(self, status: int | None) -> None:
        """Note that the template has reaped it, or has died itself (None)."""
        self._status = status
        self.gone.set()

    @property
    def died_with_template(self) -> bool:
        """Whether it is gone because the template is."""
        return self.gone.is_set() and self._status is None

    def close(self) -> None:
        """Close the file descriptors; after the last use."""
        if self._pidfd < 0:
            return
        if self._writer is not None:
            self._writer.close()
        else:
            self._socket.close()
        os.close(self._pidfd)
        os.close(self._stderr)
        self._pidfd = -1

    def discard(self) -> None:
        """Kill the process without waiting for it: one that never had a job."""
        with contextlib.suppress(OSError):  # it was faster
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.close()

    def _last_words(self) -> str:
        if self._pidfd < 0:
            return ""
        size = os.fstat(self._stderr).st_size
        words = os.pread(self._stderr, _LAST_WORDS_BYTES, max(0, size - _LAST_WORDS_BYTES))
        return words.decode(errors="replace")


class Template:
    """The template process.

    Parameters
    ----------
    on_exit
        Called for each worker that has been reaped.
    """

    def __init__(self, on_exit: Callable[[Worker], None]) -> None:
        self.died = asyncio.Event()
        self._on_exit = on_exit
        self._workers: dict[int, Worker] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._forks: list[asyncio.Future[Worker]] = []

    async def start(self, timeout_s: float) -> Ready:
        """Start the process and wait until it has read the tokenizer.

        Raises
        ------
        TemplateDiedError
            It ended or did not become ready in time; its own words are on our standard error.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _TEMPLATE, str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT},
                stdin=asyncio.subprocess.DEVNULL,
            )
        self._control = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._on_packet)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._ready)
        except TimeoutError as error:
            await self.stop()
            raise TemplateDiedError(f"not ready after {timeout_s:g} s") from error

    async def fork(self, timeout_s: float) -> Worker:
        """Make one worker.

        Raises
        ------
        TemplateDiedError
            The template is gone or silent.
        """
        if self._control is None or self.died.is_set():
            raise TemplateDiedError("the template is gone")
        made: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._forks.append(made)
        try:
            self._control.send(worker_messages.packet(worker_messages.Fork()))
            async with asyncio.timeout(timeout_s):
                return await (await made).open()
        except asyncio.CancelledError:
            self._discard(made)
            raise
        except (OSError, TimeoutError) as error:
            await self.stop()
            self._discard(made)
            raise TemplateDiedError("the template does not answer") from error

    async def stop(self) -> None:
        """Kill the template, and so its workers, and wait until it is gone."""
        self._lost()
        if self._process is None:
            return
        self._kill()
        await self._process.wait()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it was faster
                self._process.kill()

    def _on_packet(self) -> None:
        if self._control is None:
            return
        try:
            packet, descriptors, _, _ = socket.recv_fds(
                self._control, worker_messages.MAX_PACKET_BYTES, _FDS_PER_WORKER
            )
        except BlockingIOError:
            return
        except OSError:
            packet, descriptors = b"", []
        if not packet:
            self._lost()
            return
        try:
            self._take(worker_messages.decode_from_template(packet), descriptors)
        except worker_messages.JobError as error:
            _log.warning("the grammar template sends nonsense: %s", error)
            for descriptor in descriptors:
                os.close(descriptor)
            self._kill()
            self._lost()

    def _take(self, message: worker_messages.FromTemplate, descriptors: list[int]) -> None:
        if len(descriptors) != (_FDS_PER_WORKER if isinstance(message, Forked) else 0):
            raise worker_messages.JobError(f"{len(descriptors)} file descriptors with {message}")
        if isinstance(message, Ready):
            if not self._ready.done():
                self._ready.set_result(message)
        elif isinstance(message, Forked):
            self._take_worker(message, descriptors)
        elif isinstance(message, Exited):
            worker = self._workers.pop(message.pid, None)
            if worker is not None:
                worker.reaped(message.status)
                self._on_exit(worker)

    def _take_worker(self, message: Forked, descriptors: list[int]) -> None:
        if not self._forks:
            raise worker_messages.JobError("a worker that nobody asked for")
        if not worker_messages.are_of_a_worker(descriptors):
            raise worker_messages.JobError("file descriptors of something else")
        stream, pidfd, stderr = descriptors
        worker = Worker(message.pid, socket.socket(fileno=stream), pidfd, stderr)
        made = self._forks.pop(0)
        if made.done():  # nobody waits for it any more
            worker.discard()
        else:
            self._workers[message.pid] = worker
            made.set_result(worker)

    def _discard(self, made: asyncio.Future[Worker]) -> None:
        """Give up a worker that was made as its fork was given up."""
        if made.done() and not made.cancelled() and made.exception() is None:
            self._workers.pop(made.result().pid, None)
            made.result().discard()

    def _lost(self) -> None:
        """Fail what waits for the template, and give up its workers: they die with it."""
        if self.died.is_set() or self._control is None:
            return
        self.died.set()
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        futures: list[asyncio.Future[Any]] = [self._ready, *self._forks]
        for waiting in futures:
            if not waiting.done():
                waiting.set_exception(TemplateDiedError("the template process ended"))
                waiting.exception()  # nobody may be waiting any more
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            worker.reaped(None)
            self._on_exit(worker)
