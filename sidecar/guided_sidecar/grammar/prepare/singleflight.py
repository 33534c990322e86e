"""Single flight: one compile per key, shared by all who wait; cancelled when the last waiter leaves."""

import asyncio
import collections
import dataclasses
import time
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, Tracer, set_span_in_context

from guided_contract.errors import CATALOGUE, ErrorCode, GuidedError
from guided_sidecar.grammar.pool.compile_progress import CompileProgress
from guided_sidecar.grammar.pool.pool import Pool
from guided_sidecar.grammar.prepare.cache import Entry, GrammarCache
from guided_sidecar.grammar.prepare.cache_state import ProofResult
from guided_sidecar.grammar.prepare.jobs import load_of
from guided_sidecar.grammar.prepare.refusals import Refusals
from guided_sidecar.grammar.worker_messages import Compiled, Done, Failed, Job, Outcome
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.conventions import (
    CANCELLED,
    GRAMMAR_BACKEND,
    GRAMMAR_BYTES,
    GRAMMAR_COMPILE,
    GRAMMAR_COMPILE_DURATION,
    GRAMMAR_KEY,
    GRAMMAR_KIND,
    GRAMMAR_PROOF,
    GRAMMAR_PROOF_DURATION,
)

_RETRY_AFTER_S: Final = 1.0


@dataclasses.dataclass(slots=True)
class InFlight:
    """One grammar on its way through a worker."""

    key: str
    progress: CompileProgress  # its compile's
    task: asyncio.Task[Entry] | None = None
    waiters: int = 0
    entry: Entry | None = None  # with a lease for each who waited
    compiled: Done | None = None  # what ranks may load until it is proven, or refused
    told: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)  # `compiled` has been there
    span: SpanContext | None = None  # its compile's


class SingleFlight:
    """The grammars in flight, by key.

    Parameters
    ----------
    pool
        Compiles.
    refusals
        Hear of what was refused.
    tracer
        Makes grammar.compile.
    cache
        Takes a proven grammar, and takes back what was compiled for nothing.

    Attributes
    ----------
    proofs
        Proofs by what became of them.
    """

    def __init__(self, pool: Pool, refusals: Refusals, tracer: Tracer, cache: GrammarCache) -> None:
        self._pool = pool
        self._refusals = refusals
        self._tracer = tracer
        self._cache = cache
        self.proofs = collections.Counter[ProofResult]()
        self._in_flight: dict[str, InFlight] = {}

    def under_way(self, key: str) -> InFlight | None:
        """Return the flight of a key, if there is one."""
        return self._in_flight.get(key)

    def start(self, job: Job, trace: Context) -> InFlight:
        """Begin a flight; `trace` is of the first who waits for it."""
        progress = CompileProgress(job.timeout_s, tell=lambda message: self._compiled(flight, message))
        flight = self._in_flight[job.key] = InFlight(job.key, progress)
        flight.task = asyncio.create_task(self._compile_and_land(flight, job, trace))
        flight.task.add_done_callback(lambda task: self._ended(flight, task))
        return flight

    async def wait(self, flight: InFlight, limit_s: float, until: float) -> Entry:
        """Wait for a flight and return its grammar, with a lease on it; the last who leaves ends it.

        Parameters
        ----------
        flight
            The grammar's.
        limit_s
            How long the caller waits, in seconds.
        until
            When that is over, in monotonic seconds.

        Raises
        ------
        GuidedError
            The grammar is refused.
        """
        assert flight.task is not None
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        except BaseException:
            if flight.entry is not None:  # who leaves as it is done
                self._cache.end_lease(flight.entry)
            raise
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._forget(flight)
                self._retract(flight)  # before another flight of this key begins
                progress = flight.progress
                if time.monotonic() >= until:
                    self._refusals.record(flight.key, progress.too_late(progress.limit_s))
                    progress.ended = progress.too_late(limit_s)
                if progress.deaths:  # who leaves while it is tried again takes no guilt away
                    self._refusals.record(flight.key, GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED))
                flight.task.cancel()
                # The answer is given when the worker is gone from the process table.
                await asyncio.wait([flight.task])

    def _ended(self, flight: InFlight, task: asyncio.Task[Entry]) -> None:
        self._forget(flight)
        if not task.cancelled():
            task.exception()  # seen, also when every waiter has gone

    def _forget(self, flight: InFlight) -> None:
        if self._in_flight.get(flight.key) is flight:
            del self._in_flight[flight.key]

    async def _compile_and_land(self, flight: InFlight, job: Job, trace: Context) -> Entry:
        done = await self._compile(flight, job, trace)
        entry = Entry(job.key, done, leases=flight.waiters)
        self._cache.land(entry)
        flight.entry, flight.compiled = entry, None
        return entry

    def _compiled(self, flight: InFlight, message: Compiled) -> None:
        """Have ranks load a grammar while it is being proven."""
        done = message.done
        if self._in_flight.get(flight.key) is not flight:  # given up, and its worker not yet dead
            return
        if flight.compiled is not None and load_of(flight.key, flight.compiled) != load_of(flight.key, done):
            self._cache.retract(flight.key, flight.compiled, done)
        flight.compiled = done
        flight.told.set()

    def _retract(self, flight: InFlight) -> None:
        """Take back what ranks were told to load of a flight that failed."""
        done, flight.compiled = flight.compiled, None
        if done is not None:
            self._cache.retract(flight.key, done)

    async def _compile(self, flight: InFlight, job: Job, trace: Context) -> Done:
        span = self._tracer.start_span(GRAMMAR_COMPILE, trace)
        flight.span = span.get_span_context()
        contexts.attach(set_span_in_context(span))  # of this flight's task: it ends with it
        attributes: dict[str, Any] = {GRAMMAR_KEY: job.key, GRAMMAR_KIND: job.kind}
        error_code = CANCELLED
        try:
            outcome = await self._pool.compile(job, flight.progress)
            self._record_proofs(outcome, job, spans.below(span))
            done = _succeeded(outcome)
            attributes |= {
                GRAMMAR_BACKEND: done.backend,
                GRAMMAR_BYTES: done.size_bytes,
                GRAMMAR_COMPILE_DURATION: done.compile_ns / 1e9,
                GRAMMAR_PROOF_DURATION: done.proof_ns / 1e9,
            }
            error_code = ""
        except GuidedError as error:
            error_code = error.code.value
            self._refusals.record(job.key, error)
            raise
        except asyncio.CancelledError:
            if (ended := flight.progress.ended) is not None:
                error_code = ended.code.value
            raise
        else:
            return done
        finally:
            if error_code:
                self._retract(flight)
            spans.end(span, error_code=error_code, attributes=attributes)

    def _record_proofs(self, outcome: Outcome, job: Job, trace: Context) -> None:
        for proof in outcome.proofs:
            self.proofs["refused" if proof.error_code else "finished" if proof.texts else "unfinished"] += 1
            told = {GRAMMAR_KEY: job.key, GRAMMAR_KIND: job.kind, GRAMMAR_BACKEND: proof.backend}
            span = self._tracer.start_span(GRAMMAR_PROOF, trace, attributes=told, start_time=proof.start_ns)
            spans.end(span, error_code=proof.error_code, end_ns=proof.end_ns)


def _succeeded(outcome: Outcome) -> Done:
    if isinstance(outcome, Failed):
        code = ErrorCode(outcome.code)
        again_s = _RETRY_AFTER_S if CATALOGUE[code].retryable else None
        raise GuidedError(code, outcome.message, path=outcome.path, retry_after_s=again_s)
    return outcome
