"""Connections to the sidecar's stream socket, from the client's side; they never give up.

A ServiceConnection lives on an event loop that is there: the API server's, the launcher's. Ranks and engine
cores have a ServiceLink, a thread with a loop. Nothing on the hot path waits for it: while the service is
away, running requests go on with what is loaded.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from guided_contract import wire
from guided_contract.tasks import live

MAX_UNSENT: Final = 1024
_RETRY_S: Final = 0.1  # the service restarts in under a second
_NAME: Final = "guided-service-link"
_log = logging.getLogger("guided_engine")


class ServiceConnection:
    """One connection to the grammar service, kept up for as long as `run` runs.

    Parameters
    ----------
    path
        The service's socket; it may come and go.
    hello
        Makes the first message of each connection.
    receive
        Called with each message after Welcome.
    lost
        Called when an established connection has ended.
    welcomed
        Called when a connection is established.
    """

    def __init__(
        self,
        path: Path,
        hello: Callable[[], wire.Hello],
        receive: Callable[[wire.ServiceMessage], None],
        lost: Callable[[], None] = lambda: None,
        welcomed: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._hello = hello
        self._receive = receive
        self._lost = lost
        self._welcomed = welcomed
        self._writer: asyncio.StreamWriter | None = None
        self.established = asyncio.Event()

    async def run(self) -> None:
        """Connect and read, again and again, until cancelled."""
        while True:
            try:
                await self._serve()
            except (OSError, EOFError, wire.WireError) as error:
                level = logging.WARNING if self.established.is_set() else logging.DEBUG
                _log.log(level, "guidedmodel: no connection to the grammar service: %r", error)
            finally:
                self._drop()
            await asyncio.sleep(_RETRY_S)

    def send(self, message: wire.Message) -> bool:
        """Queue a message on the established connection; False: there is none any more, and it is lost.

        Raises
        ------
        guided_contract.wire.WireError
            The message is too long for a frame.
        """
        data = wire.frame(message)
        if self._writer is None or not self.established.is_set():
            return False
        self._writer.write(data)
        return not self._writer.is_closing()  # it closes by a write to a peer that has gone

    async def _serve(self) -> NoReturn:
        reader, self._writer = await asyncio.open_unix_connection(str(self._path))
        self._writer.write(wire.frame(self._hello()))
        welcome = wire.decode_service_message(await wire.read(reader))
        if not isinstance(welcome, wire.Welcome):
            raise wire.WireError(f"expected Welcome, got {type(welcome).__name__}")
        self.established.set()
        self._welcomed()
        while not self._writer.is_closing():  # nor what has come and waits, once an answer cannot go
            self._receive(wire.decode_service_message(await wire.read(reader)))
        raise EOFError

    def _drop(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self.established.is_set():
            self.established.clear()
            self._lost()


class ServiceLink:
    """Says hello, and answers what the service sends.

    Parameters
    ----------
    path
        The service's stream socket.
    hello
        Makes the Hello of each connection.
    answer
        Called with each message after Welcome; returns what to send back, or None. What it raises costs this
        connection: the service sends Load again on the next. Nothing is sent while it runs.
    lost
        Called when a connection that was welcomed has ended.
    """

    def __init__(
        self,
        path: Path,
        hello: Callable[[], wire.Hello],
        answer: Callable[[wire.ServiceMessage], wire.ClientMessage | None] = lambda _message: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.connection = ServiceConnection(path, hello, self._receive, lost, self._send_unsent)
        self._answer = answer
        self._unsent: deque[wire.ClientMessage] = deque(maxlen=MAX_UNSENT)
        self._stopped = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; it connects as soon as the service listens."""
        self._thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
        self._thread.start()

    def send(self, message: wire.ClientMessage) -> None:
        """Have a message sent, in order, when the service is there; returns at once.

        More than MAX_UNSENT while it is away are too many: the oldest are forgotten.
        """
        self._unsent.append(message)
        if (task := self._task) is not None:
            _soon(task, self._send_unsent)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the connection and the thread."""
        self._stopped.set()
        if (task := self._task) is not None:
            _soon(task, task.cancel)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # by `stop`
            asyncio.run(self._live())

    async def _live(self) -> None:
        self._task = asyncio.current_task()
        if not self._stopped.is_set():
            await live(_NAME, self.connection.run)

    def _receive(self, message: wire.ServiceMessage) -> None:
        if (reply := self._answer(message)) is not None:
            self.connection.send(reply)

    def _send_unsent(self) -> None:
        while self._unsent and self.connection.send(message := self._unsent[0]):
            with contextlib.suppress(IndexError, ValueError):  # another thread has filled the queue meanwhile
                self._unsent.remove(message)


def _soon(task: asyncio.Task[None], call: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # its loop is closed
        task.get_loop().call_soon_threadsafe(call)
