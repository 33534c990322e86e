"""The process of a rank's matchers as the rank sees it: what it is told, and what happens when it dies."""

import logging
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from guided_contract.wire import Load, Loaded, Unload
from guided_engine.matchers import messages, template
from guided_engine.matchers.loaded_grammars import ByKey
from guided_engine.matchers.memory import LOADS, NOBODY, SharedMemory
from guided_engine.matchers.messages import Answer, Message, Orphan
from guided_engine.matchers.template import Forked, Made, Ready

# A process hangs that takes so much CPU time, or so much time in all, for a sequence's tokens or all masks.
CPU_S: Final = 1.0
WALL_S: Final = 30.0
# As struct timeval: between two looks at its clock; and for how long it may not read what is sent.
_LOOK: Final = struct.pack("ll", 0, 50_000)
SEND: Final = struct.pack("ll", 10, 0)
_LOAD_S: Final = 120.0
_log = logging.getLogger("guided_engine")


class MatchersLostError(Exception):
    """The process has died, or was given up; `number` is the sequence that it was at work for, else 0."""

    def __init__(self, number: int = 0, *, is_hung: bool = False) -> None:
        super().__init__("the process of this rank's matchers has ended")
        self.number, self.is_hung = number, is_hung


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
        self._texts: ByKey[Load] = ByKey()
        self._held: dict[str, int] = {}  # by key, which process has it: its generation
        self.pid = 0
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
        self._fork()
        self._take_up()
        return ready.fingerprints

    def send(self, *some: Message) -> None:
        """Send messages, which wakes the process; that they are lost is seen when an answer is waited for."""
        if self._taken_up == self._generation and self._broken is None:
            try:
                self._taken.send_bytes(messages.encode(some))
            except OSError as error:
                self._broken = error  # perhaps amid a message

    def answer(self) -> Answer:
        """Return the next answer to an Ask; raises MatchersLostError."""
        if self._taken_up != self._generation or self._broken is not None:
            is_hung = isinstance(self._broken, BlockingIOError)
            raise MatchersLostError(int(self.memory.at_work[0]), is_hung=is_hung)
        at_work, since_s, since_cpu_s = b"", 0.0, 0.0
        while True:
            try:
                return messages.decode_answer(self._taken.recv_bytes())
            except BlockingIOError:  # after _LOOK
                now_s, cpu_s, now = time.monotonic(), self._cpu_s(), self.memory.at_work.tobytes()
                if now != at_work:
                    at_work, since_s, since_cpu_s = now, now_s, cpu_s
                # What it takes to load grammars, perhaps in its other thread, says nothing of its steps.
                if self.memory.loads[0] or self.memory.at_work[0] == LOADS:
                    since_cpu_s = cpu_s
                if cpu_s - since_cpu_s < CPU_S and now_s - since_s < WALL_S:
                    continue
                raise MatchersLostError(int(self.memory.at_work[0]), is_hung=True) from None
            except (EOFError, OSError) as error:
                raise MatchersLostError(int(self.memory.at_work[0])) from error

    def renew(self) -> None:
        """Take up with the process that is there now, or start another where it is lost."""
        self._renewed(self._taken_up)
        self._take_up()

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
                    self._renewed(generation)
                    continue
                if not loaded.error:
                    self._held[load.key] = generation
                    self._texts.put(load.key, load)
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
            self._texts.orphan()
            self._tell(Orphan())

    def close(self) -> None:
        """End the process, and the template."""
        self._is_closed = True
        self._control.close()

    def _take_up(self) -> None:
        with self._lock:
            self._taken, self._taken_up, self._broken = self._steps, self._generation, None

    def _loaded(self, load: Load) -> Loaded:
        self._loads.send_bytes(messages.encode(load))
        if not self._loads.poll(_LOAD_S):
            raise TimeoutError("it takes too long")
        return messages.decode_loaded(self._loads.recv_bytes())

    def _tell(self, message: Unload | Orphan) -> None:
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
            if not self._is_closed:
                _log.critical("guidedmodel: what starts processes of matchers has ended: so does this rank")
                os._exit(1)
            raise
        for one in its:
            one.close()
        steps, loads = own
        steps.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LOOK)
        for one in own:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND)
        self._steps, self._loads = Connection(steps.detach()), Connection(loads.detach())
        self.pid = forked.pid
        self._generation += 1
        return forked.status

    def _cpu_s(self) -> float:
        """Return the CPU time of the process, by its own clock (clock_getcpuclockid(3)); 0: it is gone."""
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return 0.0


def _said(status: int | None) -> str:
    if status is None:
        return "unknown"
    killed = status & 0x7F
    return signal.Signals(killed).name if killed else f"exit status {status >> 8}"
