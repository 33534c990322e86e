"""The grammar service of a node other than its replica's first: it relays for its ranks.

One sidecar of a replica, the first node's, compiles, proves and compares, for all nodes: so every rank has
the very same grammar. A rank here is connected to it by a link of its own, which lives as long as the rank's
own connection: whoever loses one has lost both, and begins anew. What a rank reads from the grammars folder
is fetched first.
"""

import asyncio
import logging
import re
from collections import deque
from typing import Final

import msgspec

from guided_contract import records, wire
from guided_contract.records import Digests
from guided_contract.wire import (
    Chunk,
    ClientMessage,
    Compare,
    Failed,
    Fetch,
    Load,
    Loaded,
    ServiceMessage,
    Unload,
    WireError,
)
from guided_sidecar.grammar import artifacts
from guided_sidecar.settings import Settings
from guided_sidecar.socket.server import Peer, Session, SocketServer
from guided_sidecar.socket.sessions import SilentSession
from guided_sidecar.socket.snapshot import ServiceSnapshot

_log = logging.getLogger(__name__)
_RETRY_S: Final = 0.2
_CONNECT_TIMEOUT_S: Final = 5.0
_MAX_UNSENT: Final = 1024  # what a rank gives up while the first node is away; digests are not kept
_KEY: Final = re.compile(r"[0-9a-f]{64}")


class Relay:
    """The ranks of this node, each with its link.

    Parameters
    ----------
    settings
        Which node this is, and where the first one is.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server = SocketServer(settings, self._welcome)
        self._links: dict[int, Link] = {}
        self._holders: dict[str, set[Link]] = {}  # who may still read an artefact

    async def start(self) -> None:
        """Bind the socket."""
        artifacts.reset(self._settings.pod.grammars_folder)
        await self._server.start()

    async def stop(self) -> None:
        """Close all connections."""
        await self._server.stop()

    def snapshot(self) -> ServiceSnapshot:
        """Return who is connected here, and who of them on the first node."""
        expected = self._settings.pod.sampling_of(self._settings.node)
        linked = {rank for rank, link in self._links.items() if link.is_welcome}
        return ServiceSnapshot(
            hellos=tuple(peer.hello for peer in self._server.peers),
            expected_ranks=expected,
            unlinked=frozenset(expected) - linked,
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
        if hello.rank not in self._settings.pod.sampling_of(self._settings.node):
            raise WireError(f"rank {hello.rank} is not of node {self._settings.node}")
        link = self._links[hello.rank] = Link(peer, self._settings, self._holders)
        return link


class Link:
    """One rank's connection to the first node's service.

    Parameters
    ----------
    peer
        The rank.
    settings
        Where the first node is, and the folder of artefacts.
    holders
        By artefact, the links whose ranks may read it: shared by all links.
    """

    def __init__(self, peer: Peer, settings: Settings, holders: dict[str, set["Link"]]) -> None:
        self.is_welcome = False
        self._peer = peer
        self._pod = settings.pod
        self._leader = settings.leader
        self._most_bytes = settings.artifact_bytes
        self._hello = msgspec.structs.replace(peer.hello, node=settings.node)
        self._holders = holders
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: deque[ClientMessage] = deque(maxlen=_MAX_UNSENT)
        self._loads: deque[Load] = deque()  # the first is being fetched
        self._content = bytearray()
        self._task = asyncio.create_task(self._live())

    def receive(self, message: ClientMessage) -> None:
        """Take a rank's Loaded or Failed."""
        if not isinstance(message, Loaded | Failed):
            raise WireError(f"a rank does not send {type(message).__name__}")
        if self.is_welcome:
            self.send(message)
        else:
            self._unsent.append(message)

    def closed(self) -> None:
        """End the link of a rank that has gone."""
        self.is_welcome = False
        self._task.cancel()
        for key in list(self._holders):
            self._drop(key)

    def send(self, message: ClientMessage) -> None:
        """Send to the first node, which has welcomed us."""
        if self._writer is not None:
            self._writer.write(wire.frame(message))

    async def _live(self) -> None:
        try:
            reader, self._writer = await self._connected()
            self._writer.write(wire.frame(self._hello))
            while True:
                self._take(wire.decode_service_message(await wire.read(reader)))
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
                    return await asyncio.open_connection(self._leader, self._pod.ports.nodes)
            except (OSError, TimeoutError) as error:
                _log.debug("the first node is not there yet: %r", error)
            await asyncio.sleep(_RETRY_S)

    def _take(self, message: ServiceMessage) -> None:
        match message:
            case wire.Welcome():
                self.is_welcome = True
                while self._unsent:
                    self.send(self._unsent.popleft())
            case Load(artifact=None):
                self._peer.send(message)
            case Load():
                if message.artifact != message.key or not _KEY.fullmatch(message.key):
                    raise WireError("an artefact is called like its key")
                self._holders.setdefault(message.key, set()).add(self)
                self._loads.append(message)
                if len(self._loads) == 1:
                    self._fetch_next()
            case Chunk():
                self._keep(message)
            case Unload():
                self._drop(message.key)
                self._peer.send(message)
            case _:
                raise WireError(f"a rank is not sent {type(message).__name__}")

    def _fetch_next(self) -> None:
        """Give the rank what is here already, and ask for the first that is not."""
        while self._loads:
            load = self._loads[0]
            if not (self._pod.grammars_folder / load.key).exists():
                self.send(Fetch(artifact=load.key, offset=len(self._content)))
                return
            self._peer.send(self._loads.popleft())

    def _keep(self, chunk: Chunk) -> None:
        """Take a part of the artefact that is being fetched."""
        if not self._loads or chunk.artifact != self._loads[0].key:
            raise WireError("a chunk that was not asked for")
        self._content += chunk.data
        if len(self._content) > self._most_bytes:
            raise WireError(f"an artefact of more than {self._most_bytes} bytes")
        if chunk.last:
            self._store()
        self._fetch_next()

    def _store(self) -> None:
        content, self._content = bytes(self._content), bytearray()
        error = "" if content else "the first node no longer has it"
        try:
            if content:
                artifacts.write(self._pod.grammars_folder, self._loads[0].key, content)
        except OSError as fault:
            error = f"it cannot be kept here: {fault.strerror}"
        if error:
            self.send(Loaded(key=self._loads.popleft().key, error=error))

    def _drop(self, key: str) -> None:
        """Note that the rank no longer reads an artefact; with the last one it goes."""
        holders = self._holders.get(key, set())
        holders.discard(self)
        if not holders and self._holders.pop(key, None) is not None:
            artifacts.remove(self._pod.grammars_folder, key)
