"""A port for short requests, which answers whoever else is connected: other pods reach it too.

Each connection is for one request, of so many bytes, and has a deadline for all of it; there are so many at
once, and one more ends the oldest. aiohttp by itself waits for ever for the rest of a request, reads on
behind it, and for connections has no bound: somebody who opens many takes every file descriptor of the
process, and somebody who says much all of its time.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Final, Protocol

from guided_contract.tasks import Living

MOST_CONNECTIONS: Final = 128
MOST_BYTES: Final = 16 << 10  # of a request for a page, with the headers of a proxy before it
DEADLINE_S: Final = 10.0  # of a probe the kubelet waits for 4 s, of a page Prometheus by default for 10 s
_BACKLOG: Final = 1024  # that come at once; the kernel has others begin anew, a second later
_RECENT_S: Final = 1.0


class Runner(Protocol):
    """What speaks HTTP: an aiohttp.web.AppRunner, whose application calls `answer_once`."""

    @property
    def server(self) -> Callable[[], asyncio.Protocol] | None:
        """Makes the protocol of a connection."""

    async def setup(self) -> None:
        """Make the server."""

    async def cleanup(self) -> None:
        """End it, and what is connected."""


class Response(Protocol):
    """An aiohttp.web.StreamResponse."""

    @property
    def headers(self) -> MutableMapping[str, str]:
        """Those that are about to be sent."""

    def force_close(self) -> None:
        """Close the connection after it."""


async def answer_once(_request: object, response: Response) -> None:
    """End the connection with its first response; for an aiohttp.web.Application's on_response_prepare."""
    response.headers["Connection"] = "close"
    response.force_close()


class _Bounded(asyncio.Protocol):
    """Hands on to another protocol what comes, until it is too much: that is not even looked at."""

    def __init__(self, inner: asyncio.Protocol, most_bytes: int) -> None:
        self._inner = inner
        self._left = most_bytes
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left >= 0:
            self._inner.data_received(data)
        elif self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._inner.connection_lost(error)


@dataclass(frozen=True, slots=True)
class _Connection:
    socket: socket.socket
    transport: asyncio.Transport
    end: asyncio.TimerHandle

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0


class HttpPort:
    """The port, while it is open.

    Parameters
    ----------
    runner
        Serves what is connected.
    host, port
        Where to listen.
    most_connections
        At once; the oldest has to go for one more.
    deadline_s
        From a connection's beginning to its end.
    most_bytes
        That a connection says before it is let go.
    """

    def __init__(  # noqa: PLR0913 - its bounds
        self,
        runner: Runner,
        host: str,
        port: int,
        *,
        most_connections: int = MOST_CONNECTIONS,
        deadline_s: float = DEADLINE_S,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._runner = runner
        self._address = (host, port)
        self._most = most_connections
        self._deadline_s = deadline_s
        self._most_bytes = most_bytes
        self._socket: socket.socket | None = None
        self._connections: deque[_Connection] = deque()  # the oldest first
        self._acceptor = Living("http-port", self._accept)

    async def start(self) -> None:
        """Listen.

        Raises
        ------
        OSError
            The port is taken.
        """
        await self._runner.setup()
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        self._socket = socket.create_server(self._address, family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        self._acceptor.start()

    async def stop(self) -> None:
        """Close the port and all connections."""
        await self._acceptor.stop()
        if self._socket is not None:
            self._socket.close()
        for connection in self._connections:
            connection.end.cancel()
        await self._runner.cleanup()

    async def _accept(self) -> None:
        """Take connections one by one, so that what is connected is served between any two."""
        loop = asyncio.get_running_loop()
        make, most_bytes = self._runner.server, self._most_bytes
        assert self._socket is not None
        assert make is not None
        while True:
            accepted, _ = await loop.sock_accept(self._socket)
            self._make_room()
            try:
                transport, _ = await loop.connect_accepted_socket(
                    lambda: _Bounded(make(), most_bytes), accepted
                )
            except BaseException:
                accepted.close()
                raise
            end = loop.call_later(self._deadline_s, transport.abort)
            self._connections.append(_Connection(accepted, transport, end))

    def _make_room(self) -> None:
        still = deque[_Connection]()
        for connection in self._connections:
            if connection.is_open:
                still.append(connection)
            else:
                connection.end.cancel()
        while len(still) >= self._most:
            oldest = still.popleft()
            oldest.end.cancel()
            oldest.transport.abort()
        self._connections = still


class Recent:
    """A page that is made at most once a second, for all who ask meanwhile.

    Parameters
    ----------
    make
        Makes it.
    """

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._page = b""
        self._stale_s = 0.0

    def __call__(self) -> bytes:
        """Return the page."""
        now_s = time.monotonic()
        if now_s >= self._stale_s:
            self._page = self._make()
            self._stale_s = now_s + _RECENT_S
        return self._page
