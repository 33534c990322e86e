"""The grammar service as a whole: who is connected, the pool, the ranks, and what is told of them."""

from pathlib import Path

from opentelemetry.context import Context
from opentelemetry.trace import Tracer

from guided_contract.errors import ErrorCode
from guided_contract.wire import Load, Loaded, WireError
from guided_sidecar.grammar.capacity import Capacity
from guided_sidecar.grammar.pool.pool import Pool
from guided_sidecar.grammar.pool.workers import Workers
from guided_sidecar.grammar.prepare.named_grammars import NamedGrammars
from guided_sidecar.grammar.prepare.preparer import Preparer
from guided_sidecar.ranks.agreement import Agreement
from guided_sidecar.ranks.load_barrier import LoadBarrier
from guided_sidecar.settings import Settings
from guided_sidecar.socket.server import Peer, Session, SocketServer
from guided_sidecar.socket.sessions import ApiSession, RankSession, Room, SilentSession
from guided_sidecar.socket.snapshot import ServiceSnapshot
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.conventions import GRAMMAR_BACKEND, GRAMMAR_KEY, GRAMMAR_LOAD, RANK


class GrammarService:
    """Grammar workers behind the stream socket; `tracer` makes grammar.prepare, .compile and .load."""

    def __init__(self, settings: Settings, tracer: Tracer, agreement: Agreement) -> None:
        self._settings = settings
        self._tracer = tracer
        self._agreement = agreement
        self._boot = ""
        capacity = Capacity.of_this_container(settings.pod.guided_decoding.compile)
        self._workers = Workers(settings, capacity.workers)
        self._load_barrier = LoadBarrier(settings.pod.sampling_ranks, self._record_load)
        self._preparer = Preparer(settings, capacity, Pool(self._workers), self._load_barrier, tracer)
        folder = settings.pod.named_grammars_dir
        self._named = NamedGrammars(Path(folder) if folder else None, self._preparer)
        self._room = Room(settings.max_pending_bytes)
        self._server = SocketServer(settings, self._welcome)

    async def start(self) -> None:
        """Bind the socket, and begin to make workers; returns before they are ready."""
        await self._server.start()
        self._workers.start()
        self._named.start()

    async def stop(self) -> None:
        """Close all connections and kill all workers."""
        await self._server.stop()
        await self._named.stop()
        await self._workers.stop()

    def snapshot(self) -> ServiceSnapshot:
        """Return how the service is at this moment."""
        return ServiceSnapshot(
            hellos=tuple(peer.hello for peer in self._server.peers),
            expected_ranks=range(self._settings.pod.sampling_ranks),
            workers=self._workers.state,
            cache=self._preparer.state,
            grammars=self._named.states,
            awaited_grammars=self._named.awaited,
            exhausted=self._workers.are_exhausted,
            agreement=self._agreement.state,
        )

    def _welcome(self, peer: Peer) -> Session:
        hello = peer.hello
        if hello.role == "launcher":
            if self._boot not in {"", hello.boot}:
                self._agreement.restart()
            self._boot = hello.boot
        if hello.role == "api":
            return ApiSession(peer, self._preparer, self._named, self._room, self._agreement)
        if hello.role == "rank" and hello.samples and hello.rank is not None:
            if hello.rank not in self._settings.pod.sampling_of(hello.node):
                raise WireError(f"there is no rank {hello.rank} on node {hello.node}")
            return RankSession(peer, hello.rank, self._load_barrier, self._agreement, self._preparer)
        return SilentSession()

    def _record_load(self, rank: int, load: Load, loaded: Loaded, trace: Context) -> None:
        told: dict[str, str | int] = {RANK: rank, GRAMMAR_KEY: load.key, GRAMMAR_BACKEND: load.backend}
        start_ns = loaded.start_ns or None
        span = self._tracer.start_span(GRAMMAR_LOAD, trace, attributes=told, start_time=start_ns)
        spans.end(
            span,
            error_code=ErrorCode.GRAMMAR_LOAD_FAILED.value if loaded.error else "",
            end_ns=loaded.end_ns or None,
        )
