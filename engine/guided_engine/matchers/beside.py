"""The process of a rank's matchers as the rank sees it: what it is told, and what happens when it dies."""

import contextlib
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from guided_contract.errors import ErrorCode
from guided_contract.wire import Load, Loaded, Unload
from guided_engine.matchers import messages, template
from guided_engine.matchers.memory import LOADS, NOBODY, SharedMemory
from guided_engine.matchers.messages import Answer, Message
from guided_engine.matchers.template import Forked, Made, Ready
from guided_engine.matchers.texts import Texts

# A process hangs that takes so much CPU time, or so much time in all, for a sequence's tokens or all masks.
CPU_S: Final = 1.0
WALL_S: Final = 30.0
# As struct timeval: between two looks at its clock; and for how long it may not read what is sent, twice if a
# part of that was.
_LOOK: Final = struct.pack("ll", 0, 50_000)
SEND: Final = struct.pack("ll", 5, 0)
_LENGTH: Final = struct.Struct("!i")  # before each message, as multiprocessing.Connection has it
_LOAD_S: Final = 120.0
FORK_S: Final = 30.0
_log = logging.getLogger("guided_engine")


class MatchersLostError(Exception):
    """The process has died, or was given up; `number` is the sequence that it was at work for, else 0.

    `code` is what that would end with.
    """

    def __init__(self, number: int = 0, *, is_hung: bool = False) -> None:
        super().__init__("the process of this rank's matchers has ended")
        self.number = number
        self.code = ErrorCode.SEQUENCE_SLOW if is_hung else ErrorCode.SEQUENCE_MATCHER_FAILED


class MatchersBeside:
    """The template and its process, for as long as the rank lives.

    `make` runs in the template; `renewed` is called when a process took the place of one that ended. The
    rank's thread sends and waits; another thread may load grammars. `pid` is the process that is there now.
    """

    def __init__(
        self, memory: SharedMemory, make: Callable[[], Made], renewed: Callable[[], None] = lambda: None
    ) -> None:
        self.memory = memory
        self._tell_renewed = renewed
        self._control = template.fork(make)
        self._lock = threading.Lock()  # of what follows
        self._loading = threading.Lock()
        self._texts = Texts()
        self._held: dict[str, int] = {}  # by key, which process has it: its generation
        self.pid = 0
        self._taken: _Steps | None = None  # by the rank's thread
        self._steps: _Steps | None = None
        self._generation = self._taken_up = 0
        self._broken: OSError | None = None
        self._is_closed = False

    def start(self) -> dict[str, str]:
        """Start the first process; return the tokenizer's fingerprints by library.

        Raises
        ------
        RuntimeError
            The template could not make them.
        """
        ready = msgspec.msgpack.decode(self._control.recv(1 << 20), type=Ready)
        if ready.error:
            raise RuntimeError(ready.error)
        self._control.settimeout(FORK_S)
        self._fork()
        self._take_up()
        return ready.fingerprints

    def send(self, *some: Message) -> None:
        """Send messages, which wakes the process; that they are lost is seen when an answer is waited for."""
        if self._taken is not None and self._taken_up == self._generation and self._broken is None:
            try:
                self._taken.send(messages.encode(some))
            except OSError as error:
                self._broken = error  # perhaps amid a message

    def answer(self) -> Answer:
        """Return the next answer to an Ask; raises MatchersLostError."""
        if self._taken is None or self._taken_up != self._generation or self._broken is not None:
            is_hung = isinstance(self._broken, BlockingIOError)
            raise MatchersLostError(self.memory.at_work[0], is_hung=is_hung)
        at_work, since_s, since_cpu_s = b"", 0.0, 0.0
        while True:
            try:
                return messages.decode_answer(self._taken.receive())
            except BlockingIOError:  # after _LOOK
                now_s, cpu_s, now = time.monotonic(), self._cpu_s(), self.memory.at_work.tobytes()
                if now != at_work:
                    at_work, since_s, since_cpu_s = now, now_s, cpu_s
                # What it takes to load grammars, perhaps in its other thread, says nothing of its steps.
                if self.memory.loads[0] or self.memory.at_work[0] == LOADS:
                    since_cpu_s = cpu_s
                if cpu_s - since_cpu_s < CPU_S and now_s - since_s < WALL_S:
                    continue
                raise MatchersLostError(self.memory.at_work[0], is_hung=True) from None
            except (EOFError, OSError) as error:
                raise MatchersLostError(self.memory.at_work[0]) from error

    def renew(self) -> None:
        """Take up with the process that is there now, or start another where it is lost."""
        self._renewed(self._taken_up)
        self._take_up()

    def text(self, key: str) -> Load | None:
        """Return a grammar that a service has sent, and has not unloaded."""
        return self._texts.get(key)

    def gave(self, loads: Iterable[Load]) -> None:
        """Note that the process is given these grammars."""
        for load in loads:
            self._held[load.key] = self._taken_up

    def missing(self, key: str) -> Load | None:
        """Return a grammar that the process has not and is to be sent first; None: it has, or nobody has."""
        if self._held.get(key) == self._taken_up or (load := self._texts.get(key)) is None:
            return None
        self._held[key] = self._taken_up
        return load

    def load(self, load: Load) -> Loaded:
        """Have a grammar loaded. Never raises."""
        error = ""
        with self._loading:
            for _ in range(2):
                generation = self._generation
                try:
                    loaded = self._loaded(load)
                except (EOFError, OSError) as fault:
                    error = f"the process of matchers ended as it loaded it: {fault!r}"
                    with contextlib.suppress(OSError):
                        self._renewed(generation)
                    continue
                if not loaded.error:
                    self._held[load.key] = generation
                    self._texts.put(load)
                return loaded
        now_ns = time.time_ns()
        return Loaded(key=load.key, error=error, start_ns=now_ns, end_ns=now_ns)

    def unload(self, unload: Unload) -> None:
        """Have a grammar forgotten. Sequences that use it keep what they need."""
        with self._loading:
            self._texts.forget(unload.key)
            self._held.pop(unload.key, None)
            self._tell(unload)

    def orphan(self) -> None:
        """Note that the service which sent the grammars has gone."""
        with self._loading:
            for key in self._texts.orphan():
                self._held.pop(key, None)
                self._tell(Unload(key=key))

    def close(self) -> None:
        """End the process, and the template."""
        self._is_closed = True
        self._control.close()
        with self._lock:
            for one in (self._taken, self._steps):
                if one is not None:
                    one.close()

    def _take_up(self) -> None:
        with self._lock:
            if self._taken is not None and self._taken is not self._steps:
                self._taken.close()
            self._taken, self._taken_up, self._broken = self._steps, self._generation, None

    def _loaded(self, load: Load) -> Loaded:
        loads = self._loads  # another thread may put another there
        loads.send_bytes(messages.encode(load))
        if not loads.poll(_LOAD_S):
            raise TimeoutError("it takes too long")
        return messages.decode_loaded(loads.recv_bytes())

    def _tell(self, message: Unload) -> None:
        try:
            self._loads.send_bytes(messages.encode(message))
        except OSError:
            _log.debug("guidedmodel: the process of matchers takes nothing", exc_info=True)

    def _renewed(self, generation: int) -> None:
        """Start a process in place of that one, unless another thread has."""
        with self._lock:
            if self._generation == generation:
                began_s = time.monotonic()
                status = self._fork()
                took_ms = 1000 * (time.monotonic() - began_s)
                said, took = _said(status), f"{took_ms:.0f} ms"
                _log.warning("guidedmodel: matchers' process ended (%s); another began after %s", said, took)
                self._tell_renewed()

    def _fork(self) -> int | None:
        self.memory.work(NOBODY)  # whoever that was, another process has not begun with it
        own, its = zip(*(socket.socketpair() for _ in range(2)), strict=True)
        try:
            socket.send_fds(self._control, [b"f"], [one.fileno() for one in its])
            forked = msgspec.msgpack.decode(self._control.recv(1 << 10), type=Forked)
        except (OSError, msgspec.DecodeError):
            for one in (*own, *its):
                one.close()
            if not self._is_closed:
                _log.critical("guidedmodel: nothing starts processes of matchers any more: this rank ends")
                os._exit(1)
            raise
        for one in its:
            one.close()
        if not forked.pid:
            for one in own:
                one.close()
            raise OSError("the template cannot fork")
        if self._steps is not None and self._steps is not self._taken:
            self._steps.close()
        steps, loads = own
        steps.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LOOK)
        for one in own:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND)
        self._steps, self._loads = _Steps(steps), Connection(loads.detach())
        self.pid = forked.pid
        self._generation += 1
        return forked.status

    def _cpu_s(self) -> float:
        """Return the CPU time of the process, by its own clock (clock_getcpuclockid(3)); 0: it is gone."""
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return 0.0


class _Steps:
    """The rank's end of a Connection, which goes on reading after a time limit where it was.

    Parameters
    ----------
    connected
        With limits for each call; BlockingIOError: it took longer, EOFError: the process has gone.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._received = b""

    def send(self, data: bytes) -> None:
        """Send a message; after an error the connection is of no more use."""
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def receive(self) -> bytes:
        """Return the next message."""
        while True:
            received = self._received
            end = _LENGTH.size
            if len(received) >= end:
                end += _LENGTH.unpack_from(received)[0]
                if len(received) >= end:
                    self._received = received[end:]
                    return received[_LENGTH.size : end]
            more = self._socket.recv(1 << 16)
            if not more:
                raise EOFError
            self._received += more


def _said(status: int | None) -> str:
    if status is None:
        return "unknown"
    killed = status & 0x7F
    return f"signal {killed}" if killed else f"exit status {status >> 8}"
