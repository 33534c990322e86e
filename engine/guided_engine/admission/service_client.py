"""Asks the grammar service to prepare grammars, and gives leases back."""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from guided_contract import wire
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.trace_context import TraceContext
from guided_engine.admission.constraints import Constraint
from guided_engine.service_link import ServiceConnection

# A restarted service is back in under a second; longer than this is an outage that the caller should see.
SERVICE_WAIT_S: Final = 5.0
RETRY_AFTER_S: Final = 2.0
_RESTARTED: Final = wire.Refused(
    id=0,
    code=ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE,
    message="the grammar service has restarted; retry",
    retry_after_s=RETRY_AFTER_S,
)
# The service keeps to a grammar's deadline itself, twice where a worker crashed, and may have a queue
# before it. Beyond that it hangs.
_ANSWER_MARGIN_S: Final = 15.0

_T = TypeVar("_T")
# What the service says to a Prepare, in its order: Prepared, and Proven where it was not; or Refused.
_Answers: TypeAlias = asyncio.Queue[wire.Prepared | wire.Proven | wire.Refused]


@dataclass(slots=True)
class Lease:
    """A prepared grammar, kept on the ranks until `release`, of which more calls than one do nothing.

    `constraint`: what it was asked for as; `unenforced`: as in wire.Prepared; `proof`: where its
    verdict comes, None once it is proven.
    """

    key: str
    backend: wire.Backend
    constraint: Constraint
    unenforced: list[str]
    proof: _Answers | None
    release: Callable[[], None]


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
        # By their ids, on this connection: from Prepare to our Release.
        self._questions: dict[int, _Answers] = {}
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
        answers: _Answers = asyncio.Queue()
        self._questions[message.id] = answers
        release = functools.partial(self._release, message.id)
        try:
            if not self._connection.send(message):
                answers.put_nowait(_RESTARTED)  # between its setting and our waking
            prepared = await _answer(answers, timeout_s, wire.Prepared)
        except BaseException as error:
            # Perhaps in the same moment as the answer came: then there is a lease, and nobody to hold it.
            release()
            if isinstance(error, wire.WireError):
                raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, str(error)) from error
            raise
        if asked.name is not None:
            asked = asked._replace(kind=prepared.kind or "json", spec=prepared.spec)
        proof = None if prepared.is_proven else answers
        return Lease(prepared.key, prepared.backend, asked, prepared.unenforced, proof, release)

    async def prove(self, lease: Lease, timeout_s: float) -> None:
        """Wait until a lease's grammar is proven; its `backend` may be another from then on.

        Raises
        ------
        GuidedError
            As `prepare`.
        """
        if lease.proof is not None:
            lease.backend = (await _answer(lease.proof, timeout_s, wire.Proven)).backend
            lease.proof = None

    def _release(self, number: int) -> None:
        # One that has refused it takes no notice; one that has restarted knows nothing of it.
        if self._questions.pop(number, None) is not None:
            self._connection.send(wire.Release(id=number))

    def _received(self, message: wire.ServiceMessage) -> None:
        match message:
            case wire.End() if self.end is not None:
                self.end(message)
            case wire.Prepared() | wire.Proven() | wire.Refused() if message.id in self._questions:
                self._questions[message.id].put_nowait(message)
            case _:
                pass  # an answer that crossed our Release, which ends the lease as well

    def _lost(self) -> None:
        questions, self._questions = self._questions, {}
        for answers in questions.values():
            answers.put_nowait(_RESTARTED)


async def _answer(answers: _Answers, timeout_s: float, kind: type[_T]) -> _T:
    """Return the service's next answer, which is of that kind, unless it refuses or is late."""
    async with _within(2 * timeout_s + _ANSWER_MARGIN_S, "does not answer"):
        answer = await answers.get()
    if isinstance(answer, kind):
        return answer
    refused = answer if isinstance(answer, wire.Refused) else _RESTARTED
    raise GuidedError(refused.code, refused.message, path=refused.path, retry_after_s=refused.retry_after_s)


@contextlib.asynccontextmanager
async def _within(seconds: float, otherwise: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        code, message = ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, f"the grammar service {otherwise}"
        raise GuidedError(code, message, retry_after_s=RETRY_AFTER_S) from error
