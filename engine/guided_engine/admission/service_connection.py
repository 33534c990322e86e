"""The sidecar's stream socket from the client's side: connects, introduces itself, reconnects."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from guided_contract import wire

_log = logging.getLogger("guided_engine")

_RETRY_S: Final = 0.1  # the service restarts in under a second

Receiver = Callable[[wire.ServiceMessage], None]


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
        receive: Receiver,
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
