"""Asks the grammar service to prepare grammars, and gives leases back."""

import asyncio
import contextlib
import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

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


@dataclass(slots=True)
class Lease:
    """A prepared grammar, kept on the ranks until `release`.

    `constraint`: what it was asked for as; `unenforced` as in wire.Prepared.
    """

    key: str
    backend: wire.Backend
    placement: wire.Placement
    constraint: Constraint
    unenforced: list[str]
    _release: Callable[[], None]
    _released: bool = field(default=False)

    def release(self) -> None:
        """Let the grammar go; more calls than one do nothing."""
        if not self._released:
            self._released = True
            self._release()


class GrammarClient:
    """The API server's client of the grammar service; lives on one event loop.

    Parameters
    ----------
    path
        The service's socket.
    hello
        Makes the introduction of an API server that places requests so.
    service_wait_s
        How long a request waits for a service that is away.

    Attributes
    ----------
    placement
        Who is to mask requests from now on, as the service said last.
    """

    def __init__(
        self,
        path: Path,
        hello: Callable[[wire.Placement], wire.Hello],
        *,
        service_wait_s: float = SERVICE_WAIT_S,
    ) -> None:
        self.placement: wire.Placement = "Rank"
        self._engines: weakref.WeakKeyDictionary[Any, Callable[[Any, wire.End], None]] = (
            weakref.WeakKeyDictionary()
        )
        self._service_wait_s = service_wait_s
        self._connection = ServiceConnection(path, lambda: hello(self.placement), self._received, self._lost)
        self._pending: dict[int, asyncio.Future[wire.Prepared]] = {}  # Prepare's id -> its answer
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
        """Have a grammar compiled, proven and loaded on every rank.

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
        answer: asyncio.Future[wire.Prepared] = asyncio.get_running_loop().create_future()
        self._pending[message.id] = answer
        try:
            async with asyncio.timeout(2 * timeout_s + _ANSWER_MARGIN_S):
                prepared = await answer
        except TimeoutError as error:
            self._release(generation, message.id)
            raise _unavailable("the grammar service does not answer") from error
        except asyncio.CancelledError:
            # Perhaps in the same moment as the answer came: then there is a lease, and nobody to hold it.
            self._release(generation, message.id)
            raise
        finally:
            self._pending.pop(message.id, None)
        return Lease(
            prepared.key,
            prepared.backend,
            self.placement,
            _constraint(asked, prepared),
            prepared.unenforced,
            lambda: self._release(generation, message.id),
        )

    def _release(self, generation: int, number: int) -> None:
        # A service that restarted has forgotten the older connection's ids; they may be in use anew.
        if generation == self._connection.generation:
            self._connection.send(wire.Release(id=number))

    def _received(self, message: wire.ServiceMessage) -> None:
        match message:
            case wire.Prepared() | wire.Refused():
                self._answered(message)
            case wire.End():
                for engine, end in list(self._engines.items()):
                    end(engine, message)
            case wire.Place():
                self.placement = message.placement

    def _answered(self, message: wire.Prepared | wire.Refused) -> None:
        answer = self._pending.get(message.id)
        if answer is None or answer.done():
            return  # it crossed our Release, which ends the lease as well
        if isinstance(message, wire.Prepared):
            answer.set_result(message)
        else:
            answer.set_exception(_refusal(message))

    def _lost(self) -> None:
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(_LostError())


def _constraint(asked: Constraint | NamedGrammar, prepared: wire.Prepared) -> Constraint:
    if isinstance(asked, Constraint):
        return asked
    if prepared.kind is None:
        raise _unavailable("the grammar service did not resolve the name of the grammar")
    return Constraint(prepared.kind, prepared.spec, asked.options)


class _LostError(Exception):
    """The connection ended before the answer."""


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
    made = wire.Ticket(key=lease.key, backend=lease.backend, placement=lease.placement, **_trace(span))
    return dict(msgspec.structs.asdict(made))


def _trace(span: TraceContext | None) -> dict[str, Any]:
    return {} if span is None else {"traceparent": span.traceparent, "tracestate": span.tracestate}
