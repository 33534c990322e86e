"""Asks the grammar service to prepare grammars, and gives leases back."""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from guided_contract import wire
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.trace_context import TraceContext
from guided_engine.admission.constraints import Constraint
from guided_engine.admission.service_connection import ServiceConnection

# A restarted service is back in under a second; longer than this is an outage that the caller should see.
SERVICE_WAIT_S: Final = 5.0
RETRY_AFTER_S: Final = 2.0
_RESTARTED: Final = "the grammar service has restarted; retry"
# The service keeps to a grammar's deadline itself, twice where a worker crashed, and may have a queue
# before it. Beyond that it hangs.
_ANSWER_MARGIN_S: Final = 15.0

_Proof: TypeAlias = asyncio.Future[wire.Backend]


@dataclass(slots=True)
class Lease:
    """A prepared grammar, kept on the ranks until `release`, of which more calls than one do nothing.

    `constraint`: what it was asked for as; `unenforced`: as in wire.Prepared; `proof`: its verdict to come,
    None once it is proven.
    """

    key: str
    backend: wire.Backend
    constraint: Constraint
    unenforced: list[str]
    proof: _Proof | None
    release: Callable[[], None]


class _Question:
    """A Prepare that was sent, and what is to be answered: it is prepared, and it is proven."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.prepared: asyncio.Future[wire.Prepared] = loop.create_future()
        self.proof: _Proof = loop.create_future()

    def fail(self, error: Exception) -> None:
        """End whatever is not answered."""
        for answer in (self.prepared, self.proof):
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # seen, also where nobody waits for it any more


class GrammarClient:
    """The API server's client of the grammar service; lives on one event loop.

    Parameters
    ----------
    path
        The service's socket.
    hello
        Makes the introduction of an API server.
    """

    def __init__(self, path: Path, hello: Callable[[], wire.Hello]) -> None:
        self.end: Callable[[wire.End], None] | None = None  # called for each request that is to end
        self._connection = ServiceConnection(path, hello, self._received, self._lost)
        # By their ids, on this connection: from Prepare to its refusal or our Release.
        self._questions: dict[int, _Question] = {}
        self._ids = itertools.count(1)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to connect, on the running loop; more calls than one do nothing."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._connection.run())

    async def prepare(self, asked: Constraint, timeout_s: float, span: TraceContext | None) -> Lease:
        """Have a grammar compiled and loaded on every rank; it may not be proven yet: see `prove`.

        Cancelling this cancels the preparation.

        Raises
        ------
        GuidedError
            The service refused it, or does not answer, or has restarted (grammar_service_unavailable).
        """
        self.start()
        async with _within(SERVICE_WAIT_S, "cannot be reached"):
            await self._connection.established.wait()
        carried = {} if span is None else span.carried
        message = wire.Prepare(id=next(self._ids), timeout_s=timeout_s, **carried, **asked._asdict())
        question = self._questions[message.id] = _Question()
        release = functools.partial(self._release, message.id)
        try:
            if not self._connection.send(message):
                question.fail(_unavailable(_RESTARTED))  # between its setting and our waking
            async with _within(2 * timeout_s + _ANSWER_MARGIN_S, "does not answer"):
                prepared = await question.prepared
        except wire.WireError as error:
            del self._questions[message.id]
            raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, str(error)) from error
        except BaseException:
            # Perhaps in the same moment as the answer came: then there is a lease, and nobody to hold it.
            release()
            raise
        if asked.name is not None:
            asked = asked._replace(kind=prepared.kind or "json", spec=prepared.spec)
        proof = None if prepared.is_proven else question.proof
        return Lease(prepared.key, prepared.backend, asked, prepared.unenforced, proof, release)

    async def prove(self, lease: Lease, timeout_s: float) -> None:
        """Wait until a lease's grammar is proven; its `backend` may be another from then on.

        Raises
        ------
        GuidedError
            As `prepare`.
        """
        if lease.proof is not None:
            async with _within(2 * timeout_s + _ANSWER_MARGIN_S, "does not answer"):
                lease.backend = await asyncio.shield(lease.proof)
            lease.proof = None

    def _release(self, number: int) -> None:
        # A service that has refused it, or restarted, knows nothing of it.
        if self._questions.pop(number, None) is not None:
            self._connection.send(wire.Release(id=number))

    def _received(self, message: wire.ServiceMessage) -> None:
        if isinstance(message, wire.End) and self.end is not None:
            self.end(message)
        if not isinstance(message, wire.Prepared | wire.Proven | wire.Refused):
            return
        question = self._questions.get(message.id)
        if question is None:
            return  # it crossed our Release, which ends the lease as well
        match message:
            case wire.Prepared():
                if not question.prepared.done():
                    question.prepared.set_result(message)
            case wire.Proven():
                question.proof.set_result(message.backend)
            case wire.Refused():
                if not question.prepared.done():
                    del self._questions[message.id]
                path, after_s = message.path, message.retry_after_s
                question.fail(GuidedError(message.code, message.message, path=path, retry_after_s=after_s))

    def _lost(self) -> None:
        questions, self._questions = self._questions, {}
        for question in questions.values():
            question.fail(_unavailable(_RESTARTED))


@contextlib.asynccontextmanager
async def _within(seconds: float, otherwise: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise _unavailable(f"the grammar service {otherwise}") from error


def _unavailable(message: str) -> GuidedError:
    return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message, retry_after_s=RETRY_AFTER_S)
