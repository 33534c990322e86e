"""The stream socket: frames in, frames out, one session per peer; who breaks the protocol is cut off.

What a peer may cost is bounded before it is read: the length of a frame, the time to say hello, the number of
connections, and what waits to be sent to it.
"""

import asyncio
import functools
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from guided_contract import wire
from guided_contract.wire import ClientMessage, Hello, ServiceMessage, Welcome, WireError
from guided_sidecar.settings import Settings

_log = logging.getLogger(__name__)


class Session(Protocol):
    """What a peer of one role may say, and what ends with its connection."""

    def receive(self, message: ClientMessage) -> None:
        """Take a message; raise WireError for one that this role does not send."""

    def closed(self) -> None:
        """Note that the connection is gone."""


class Peer:
    """One connection after its hello."""

    def __init__(self, hello: Hello, writer: asyncio.StreamWriter, most_unsent_bytes: int) -> None:
        self.hello = hello
        self._writer = writer
        self._most_unsent_bytes = most_unsent_bytes

    def send(self, message: ServiceMessage) -> None:
        """Send without waiting; a peer that does not read is cut off."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        self._writer.write(wire.frame(message))
        if transport.get_write_buffer_size() > self._most_unsent_bytes:
            _log.warning("cutting off %s %d: it does not read", self.hello.role, self.hello.pid)
            transport.abort()

    def close(self) -> None:
        """End the connection."""
        self._writer.transport.abort()


class SocketServer:
    """Serves the stream socket, and on the first of several nodes the ranks of the others.

    `welcome` makes the session of a peer that has said hello.
    """

    def __init__(self, settings: Settings, welcome: Callable[[Peer], Session]) -> None:
        self._settings = settings
        self._welcome = welcome
        self.peers: list[Peer] = []  # those that have a session, the oldest first
        self._servers: list[asyncio.Server] = []
        # Whether remote, each apart: other pods reach one of the two.
        self._connections: dict[bool, set[asyncio.Task[None]]] = {False: set(), True: set()}

    async def start(self) -> None:
        """Bind the socket, in place of what an earlier service left."""
        path = self._settings.pod.service_socket
        path.parent.mkdir(parents=True, exist_ok=True)
        self._servers.append(await asyncio.start_unix_server(self.accept, sock=_bound(path)))
        pod = self._settings.pod
        if pod.nodes > 1 and self._settings.node == 0:
            accept = functools.partial(self.accept, remote=True)
            self._servers.append(await asyncio.start_server(accept, pod.bind_host, pod.ports.nodes))

    async def stop(self) -> None:
        """Close the socket and all connections."""
        if not self._servers:
            return
        for server in self._servers:
            server.close()
        open_ones = self._connections[False] | self._connections[True]
        for task in open_ones:
            task.cancel()
        if open_ones:
            await asyncio.wait(open_ones)
        self._settings.pod.service_socket.unlink(missing_ok=True)

    async def accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, remote: bool = False
    ) -> None:
        """Serve one connection until it ends."""
        task = asyncio.current_task()
        connections = self._connections[remote]
        if task is None or len(connections) >= self._settings.max_connections:
            writer.transport.abort()
            return
        connections.add(task)
        try:
            await self._serve(reader, writer, remote=remote)
        except (WireError, TimeoutError) as error:
            _log.warning("closing a connection: %s", error or "no hello in time")
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the peer has gone, or the service stops
        finally:
            connections.discard(task)
            writer.transport.abort()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, remote: bool
    ) -> None:
        async with asyncio.timeout(self._settings.hello_timeout_s):
            hello = wire.decode_client_message(await wire.read(reader))
        if not isinstance(hello, Hello):
            raise WireError("the first message is not a hello")
        if remote != (hello.node > 0) or (remote and hello.role != "rank"):
            raise WireError(f"{hello.role} of node {hello.node} does not belong on this socket")
        peer = Peer(hello, writer, self._settings.max_unsent_bytes)
        peer.send(Welcome())
        session = self._welcome(peer)
        self.peers.append(peer)
        try:
            while True:
                session.receive(wire.decode_client_message(await wire.read(reader)))
        finally:
            self.peers.remove(peer)
            session.closed()


def _bound(path: Path) -> socket.socket:
    """Return a socket bound to `path` for our user alone (0600), put there in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(str(temporary))
    temporary.chmod(0o600)
    bound.listen(128)  # before it has its name, so that who finds it can connect
    temporary.replace(path)
    return bound
