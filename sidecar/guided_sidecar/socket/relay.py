"""The grammar service of a node other than its replica's first: it relays for its ranks.

One sidecar of a replica, the first node's, compiles, proves and compares, for all nodes. A rank here is
connected to it by a link of its own, which lives as long as the rank's own connection: whoever loses one has
lost both, and begins anew.
"""

import asyncio
import logging
from collections import deque
from typing import Final

import msgspec

from guided_contract import records, wire
from guided_contract.records import Digests
from guided_contract.wire import ClientMessage, Compare, WireError
from guided_sidecar.settings import Settings
from guided_sidecar.socket.server import Peer, Session, SocketServer
from guided_sidecar.socket.sessions import SilentSession
from guided_sidecar.socket.snapshot import ServiceSnapshot

_log = logging.getLogger(__name__)
_RETRY_S: Final = 0.2
_CONNECT_TIMEOUT_S: Final = 5.0
_MAX_UNSENT: Final = 1024  # what a rank gives up while the first node is away; digests are not kept


class Relay:
    """The ranks of this node, each with its link; `settings` say which node, and where the first one is."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._expected = settings.pod.sampling_of(settings.node)
        self._server = SocketServer(settings, self._welcome)
        self._links: dict[int, Link] = {}

    async def start(self) -> None:
        """Bind the socket."""
        await self._server.start()

    async def stop(self) -> None:
        """Close all connections."""
        await self._server.stop()

    def snapshot(self) -> ServiceSnapshot:
        """Return who is connected here, and who of them on the first node."""
        linked = {rank for rank, link in self._links.items() if link.is_welcome}
        return ServiceSnapshot(
            hellos=tuple(peer.hello for peer in self._server.peers),
            expected_ranks=self._expected,
            unlinked=frozenset(self._expected) - linked,
        )

    def forward(self, digests: Digests) -> None:
        """Have a rank's digests compared with the other nodes'; lost where the first node is away."""
        link = self._links.get(digests.rank)
        if link is not None and link.is_welcome:
            link.send(Compare(record=records.encode(digests)))

    def _welcome(self, peer: Peer) -> Session:
        hello = peer.hello
        if hello.role != "rank" or not hello.samples or hello.rank is None:
            return SilentSession()
        if hello.rank not in self._expected:
            raise WireError(f"rank {hello.rank} is not of node {self._settings.node}")
        link = self._links[hello.rank] = Link(peer, self._settings)
        return link


class Link:
    """One rank's connection to the first node's service."""

    def __init__(self, peer: Peer, settings: Settings) -> None:
        self.is_welcome = False
        self._peer = peer
        self._leader = settings.leader, settings.pod.ports.nodes
        self._hello = msgspec.structs.replace(peer.hello, node=settings.node)
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: deque[ClientMessage] = deque(maxlen=_MAX_UNSENT)
        self._task = asyncio.create_task(self._live())

    def receive(self, message: ClientMessage) -> None:
        """Take what a rank says; the first node judges whether it may."""
        if self.is_welcome:
            self.send(message)
        else:
            self._unsent.append(message)

    def closed(self) -> None:
        """End the link of a rank that has gone."""
        self.is_welcome = False
        self._task.cancel()

    def send(self, message: ClientMessage) -> None:
        """Send to the first node, which has welcomed us."""
        assert self._writer is not None
        self._writer.write(wire.frame(message))

    async def _live(self) -> None:
        try:
            reader, self._writer = await self._connected()
            self.send(self._hello)
            await wire.read(reader)  # its Welcome
            self.is_welcome = True
            while self._unsent:
                self.send(self._unsent.popleft())
            while True:
                self._peer.send(wire.decode_service_message(await wire.read(reader)))
        except (OSError, EOFError, WireError) as error:
            _log.warning("rank %s lost the first node: %r", self._hello.rank, error)
        finally:
            self.is_welcome = False
            if self._writer is not None:
                self._writer.transport.abort()
            self._peer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, however long the first node takes to be there."""
        while True:
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(*self._leader)
            except (OSError, TimeoutError) as error:
                _log.debug("the first node is not there yet: %r", error)
            await asyncio.sleep(_RETRY_S)
