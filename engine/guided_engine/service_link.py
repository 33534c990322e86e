"""The connection of a rank or the engine core to the sidecar's service: a thread that never gives up.

Nothing on the hot path waits for it. While the service is away, running requests go on with what is loaded.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from guided_contract import wire
from guided_contract.tasks import live
from guided_engine.admission.service_connection import ServiceConnection
from guided_grammar import stack

MAX_UNSENT: Final = 1024
_NAME: Final = "guided-service-link"


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
        self._thread = stack.start(_NAME, self._run)

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
