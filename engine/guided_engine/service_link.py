"""The connection of a rank or the engine core to the sidecar's service: threads that never give up.

Nothing on the hot path waits for it. While the service is away, running requests go on with what is loaded.
"""

import contextlib
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from guided_contract import wire
from guided_contract.tasks import live_in_thread
from guided_grammar import stack

FIRST_DELAY_S: Final = 0.05
MAX_DELAY_S: Final = 2.0
MAX_UNSENT: Final = 1024

_log = logging.getLogger("guided_engine")


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
        connection: the service sends Load again on the next.
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
        self._path = path
        self._hello = hello
        self._answer = answer
        self._lost = lost
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None
        self._welcomed: socket.socket | None = None
        self._sending = threading.Lock()  # held for each frame
        self._unsent: deque[wire.ClientMessage] = deque(maxlen=MAX_UNSENT)
        self._awake = threading.Event()  # there may be something to send, and somebody to send it to
        self._thread: threading.Thread | None = None
        self._sender: threading.Thread | None = None

    def _begin(self, name: str, run: Callable[[], None]) -> threading.Thread:
        return stack.start(name, live_in_thread, name, run, self._stopped)

    def start(self) -> None:
        """Start the thread; it connects as soon as the service listens."""
        self._thread = self._begin("guided-service-link", self._run)

    def send(self, message: wire.ClientMessage) -> None:
        """Have a message sent, in order, when the service is there; returns at once. From one thread.

        More than MAX_UNSENT while it is away are too many: the oldest are forgotten.
        """
        self._unsent.append(message)
        self._awake.set()
        if self._sender is None:
            self._sender = self._begin("guided-service-send", self._send_unsent)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the connection and the thread."""
        self._stopped.set()
        self._awake.set()
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        delay_s = FIRST_DELAY_S
        while not self._stopped.is_set():
            if self._serve():
                delay_s = FIRST_DELAY_S
            self._stopped.wait(delay_s)
            delay_s = min(delay_s * 2, MAX_DELAY_S)

    def _serve(self) -> bool:
        """Live one connection to its end; return whether the service welcomed us."""
        welcomed = False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                self._socket = connection
                connection.connect(str(self._path))
                connection.sendall(wire.frame(self._hello()))
                while not self._stopped.is_set():
                    message = _receive(connection)
                    if isinstance(message, wire.Welcome):
                        welcomed = True
                        self._welcomed = connection
                        self._awake.set()
                    elif (reply := self._answer(message)) is not None:
                        with self._sending:
                            connection.sendall(wire.frame(reply))
        except (OSError, wire.WireError) as error:
            _log.debug("guidedmodel: the grammar service is away: %s", error)
        finally:
            self._socket = self._welcomed = None
            if welcomed:
                self._lost()
        return welcomed

    def _send_unsent(self) -> None:
        while not self._stopped.is_set():
            self._awake.wait()
            self._awake.clear()
            while self._unsent and (connection := self._welcomed) is not None:
                message = self._unsent[0]
                try:
                    with self._sending:
                        connection.sendall(wire.frame(message))
                except OSError:
                    break  # the next connection's Welcome wakes us
                with contextlib.suppress(IndexError, ValueError):
                    self._unsent.remove(message)


def _receive(connection: socket.socket) -> wire.ServiceMessage:
    header = _receive_exactly(connection, wire.LENGTH.size)
    return wire.decode_service_message(_receive_exactly(connection, wire.body_length(header)))


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Return `size` bytes; raises ConnectionError at the end of the stream."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the service closed the connection")
        view = view[count:]
    return bytes(buffer)
