"""Asks the grammar service to prepare grammars, and gives leases back."""

import asyncio
import contextlib
import itertools
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from guided_contract import wire
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.trace_context import TraceContext
from guided_engine.admission.constraints import Constraint, NamedGrammar
from guided_engine.admission.service_connection import ServiceConnection

# A restarted service is back in under a second; longer than this is an outage that the caller should see.
SERVICE_WAIT_S: Final = 5.0
RETRY_AFTER_S: Final = 2.0
# A grammar that keeps killing the service must not be sent for ever.
_ATTEMPTS: Final = 3
# The service keeps to a grammar's deadline itself, twice where a worker crashed, and may have a queue
# before it. Beyond that it hangs.
_ANSWER_MARGIN_S: Final = 15.0

_Proof: TypeAlias = asyncio.Future[wire.Proven]
_Answer: TypeAlias = asyncio.Future[tuple[wire.Prepared, _Proof | None]]


@dataclass(slots=True)
class Lease:
    """A prepared grammar, kept on the ranks until `release`.

    `constraint`: what it was asked for as; `unenforced`: as in wire.Prepared; `proof`: its verdict to come,
    None once it is proven.
    """

    key: str
    backend: wire.Backend
    constraint: Constraint
    unenforced: list[str]
    _release: Callable[[], None]
    proof: "_Proof | None" = None
    _released: bool = field(default=False)

    def release(self) -> None:
        """Let the grammar go; more calls than one do nothing."""
        if not self._released:
            self._released = True
            self._release()

    def renew(self, other: "Lease") -> None:
        """Go on as another lease of the same grammar, taken since the service forgot this one."""
        self.backend, self.proof, self._release = other.backend, other.proof, other._release  # noqa: SLF001 - ours


class GrammarClient:
    """The API server's client of the grammar service; lives on one event loop.

    Parameters
    ----------
    path
        The service's socket.
    hello
        Makes the introduction of an API server.
    service_wait_s
        How long a request waits for a service that is away.
    """

    def __init__(
        self,
        path: Path,
        hello: Callable[[], wire.Hello],
        *,
        service_wait_s: float = SERVICE_WAIT_S,
    ) -> None:
        self._engines: weakref.WeakKeyDictionary[Any, Callable[[Any, wire.End], None]] = (
            weakref.WeakKeyDictionary()
        )
        self._service_wait_s = service_wait_s
        self._connection = ServiceConnection(path, hello, self._received, self._lost)
        self._pending: dict[int, _Answer] = {}  # Prepare's id -> its answer
        self._unproven: dict[int, _Proof] = {}  # likewise, where that was not the last word
        self._ids = itertools.count(1)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to connect, on the running loop; more calls than one do nothing."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._connection.run())

    def serve(self, engine: Any, end: Callable[[Any, wire.End], None]) -> None:
        """Have `end(engine, message)` called for each request that is to end with an error, by its core's id.

        As long as the engine lives; a second call for it changes nothing.
        """
        self._engines[engine] = end

    async def close(self) -> None:
        """Disconnect; what still waits is refused."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._lost()

    async def prepare(
        self, asked: Constraint | NamedGrammar, timeout_s: float, span: TraceContext | None
    ) -> Lease:
        """Have a grammar compiled and loaded on every rank; it may not be proven yet: see `prove`.

        Cancelling this cancels the preparation. One that a lost connection ends is asked for anew.

        Raises
        ------
        GuidedError
            The service refused it, or does not answer (grammar_service_unavailable).
        """
        self.start()
        try:
            for _ in range(_ATTEMPTS):
                await self._reach()
                with contextlib.suppress(_LostError):
                    return await self._ask(asked, timeout_s, span)
        except wire.WireError as error:
            raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, str(error)) from error
        raise _unavailable(
            "the grammar service restarted repeatedly while preparing the grammar; retry later"
        )

    async def prove(self, lease: Lease, timeout_s: float, span: TraceContext | None) -> None:
        """Wait until a lease's grammar is proven; its `backend` may be another from then on.

        One that a lost connection ends is prepared anew.

        Raises
        ------
        GuidedError
            As `prepare`: the service refused it, or does not answer.
        """
        while lease.proof is not None:
            try:
                async with _answered_within(timeout_s):
                    proven = await asyncio.shield(lease.proof)
            except _LostError:
                other = await self.prepare(lease.constraint, timeout_s, span)
                if other.key != lease.key:
                    other.release()
                    raise _unavailable("the grammar service came back as another release") from None
                lease.renew(other)
            else:
                lease.backend, lease.proof = proven.backend, None

    async def _reach(self) -> None:
        try:
            async with asyncio.timeout(self._service_wait_s):
                await self._connection.established.wait()
        except TimeoutError as error:
            raise _unavailable("the grammar service cannot be reached") from error

    async def _ask(
        self, asked: Constraint | NamedGrammar, timeout_s: float, span: TraceContext | None
    ) -> Lease:
        make = wire.PrepareNamed if isinstance(asked, NamedGrammar) else wire.Prepare
        fields = asked._asdict() | asked.options._asdict()
        del fields["options"]
        message = make(id=next(self._ids), timeout_s=timeout_s, **_trace(span), **fields)
        if not self._connection.send(message):
            raise _LostError  # between its setting and our waking
        generation = self._connection.generation
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._pending[message.id] = answer
        try:
            async with _answered_within(timeout_s):
                prepared, proof = await answer
        except BaseException:
            # Perhaps in the same moment as the answer came: then there is a lease, and nobody to hold it.
            if not answer.done() or answer.cancelled() or answer.exception() is None:
                self._release(generation, message.id)
            raise
        finally:
            self._pending.pop(message.id, None)
        return Lease(
            prepared.key,
            prepared.backend,
            _constraint(asked, prepared),
            prepared.unenforced,
            lambda: self._release(generation, message.id),
            proof,
        )

    def _release(self, generation: int, number: int) -> None:
        self._unproven.pop(number, None)
        # A service that restarted has forgotten the older connection's ids; they may be in use anew.
        if generation == self._connection.generation:
            self._connection.send(wire.Release(id=number))

    def _received(self, message: wire.ServiceMessage) -> None:
        match message:
            case wire.Prepared() | wire.Refused():
                self._answered(message)
            case wire.Proven():
                self._judged(message)
            case wire.End():
                for engine, end in list(self._engines.items()):
                    end(engine, message)

    def _answered(self, message: wire.Prepared | wire.Refused) -> None:
        answer = self._pending.get(message.id)
        if isinstance(message, wire.Refused) and message.id in self._unproven:
            self._judged(message)
        elif answer is None or answer.done():
            return  # it crossed our Release, which ends the lease as well
        elif isinstance(message, wire.Refused):
            answer.set_exception(_refusal(message))
        elif message.is_proven:
            answer.set_result((message, None))
        else:
            proof = self._unproven[message.id] = asyncio.get_running_loop().create_future()
            answer.set_result((message, proof))

    def _judged(self, message: wire.Proven | wire.Refused) -> None:
        proof = self._unproven.pop(message.id, None)
        if proof is None:
            return  # it crossed our Release
        if isinstance(message, wire.Proven):
            proof.set_result(message)
        else:
            _fail(proof, _refusal(message))

    def _lost(self) -> None:
        unproven, self._unproven = self._unproven, {}
        waiting: list[asyncio.Future[Any]] = [*self._pending.values(), *unproven.values()]
        for answer in waiting:
            if not answer.done():
                _fail(answer, _LostError())


def _constraint(asked: Constraint | NamedGrammar, prepared: wire.Prepared) -> Constraint:
    if isinstance(asked, Constraint):
        return asked
    if prepared.kind is None:
        raise _unavailable("the grammar service did not resolve the name of the grammar")
    return Constraint(prepared.kind, prepared.spec, asked.options)


class _LostError(Exception):
    """The connection ended before the answer."""


@contextlib.asynccontextmanager
async def _answered_within(timeout_s: float) -> AsyncIterator[None]:
    """Refuse what the service does not answer in its time for a grammar."""
    try:
        async with asyncio.timeout(2 * timeout_s + _ANSWER_MARGIN_S):
            yield
    except TimeoutError as error:
        raise _unavailable("the grammar service does not answer") from error


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    answer.set_exception(error)
    answer.exception()  # seen, also where nobody waits for it any more


def _unavailable(message: str) -> GuidedError:
    return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message, retry_after_s=RETRY_AFTER_S)


def _refusal(message: wire.Refused) -> GuidedError:
    try:
        code = ErrorCode(message.code)
    except ValueError:
        return _unavailable(f"the grammar service refused with an unknown code {message.code!r}")
    return GuidedError(code, message.message, path=message.path, retry_after_s=message.retry_after_s)


def ticket(lease: Lease, span: TraceContext | None) -> dict[str, object]:
    """Return what an admitted request carries to core and ranks, as the mapping of a wire.Ticket."""
    made = wire.Ticket(key=lease.key, backend=lease.backend, **_trace(span))
    return dict(msgspec.structs.asdict(made))


def _trace(span: TraceContext | None) -> dict[str, Any]:
    return {} if span is None else {"traceparent": span.traceparent, "tracestate": span.tracestate}
