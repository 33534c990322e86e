"""Single flight: one compile per key, shared by all who wait; cancelled when the last waiter leaves."""

import asyncio
import collections
import dataclasses
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, Tracer, set_span_in_context

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.pool.pool import Pool, Progress
from guided_sidecar.grammar.prepare.cache import Entry, GrammarCache, ProofResult
from guided_sidecar.grammar.prepare.jobs import load_of
from guided_sidecar.grammar.prepare.refusals import Refusals
from guided_sidecar.grammar.worker_messages import Compiled, Done, Failed, Job, Outcome
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import spans

_RETRY_AFTER_S: Final = 1.0


@dataclasses.dataclass(slots=True, eq=False)
class Flight:
    """One grammar on its way through a worker."""

    job: Job
    task: asyncio.Task[Entry] | None = None
    progress: Progress = dataclasses.field(default_factory=Progress)
    waiters: int = 0
    entry: Entry | None = None  # with a lease for each who waited
    compiled: Done | None = None  # what ranks may load until it is proven, or refused
    told: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)  # `compiled` has been there
    span: SpanContext | None = None  # its compile's


class Flights:
    """The grammars in flight, by key; `tracer` makes grammar.compile.

    `cache` takes a proven grammar, and takes back what was compiled for nothing.
    """

    def __init__(self, pool: Pool, refusals: Refusals, tracer: Tracer, cache: GrammarCache) -> None:
        self._pool = pool
        self._refusals = refusals
        self._tracer = tracer
        self._cache = cache
        self.proofs = collections.Counter[ProofResult]()  # by what became of them
        self._by_key: dict[str, Flight] = {}

    def get(self, key: str) -> Flight | None:
        """Return the flight of a key, if there is one."""
        return self._by_key.get(key)

    def start(self, job: Job, trace: Context) -> Flight:
        """Begin a flight; `trace` is of the first who waits for it."""
        flight = self._by_key[job.key] = Flight(job)
        flight.progress.tell = lambda message: self._compiled(flight, message)
        flight.task = asyncio.create_task(self._compile_and_land(flight, trace))
        flight.task.add_done_callback(lambda task: self._ended(flight, task))
        return flight

    async def wait(self, flight: Flight, limit_s: float, limit: asyncio.Timeout) -> Entry:
        """Wait for a flight and return its grammar, with a lease on it; the last who leaves ends it.

        `limit_s` is how long the caller waits, `limit` tells whether that is over. GuidedError: a refusal.
        """
        assert flight.task is not None
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        except BaseException:
            if flight.entry is not None:  # who leaves as it is done
                self._cache.release(flight.job.key)
            raise
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._give_up(flight, limit_s, is_late=limit.expired())
                # The answer is given when the worker is gone from the process table.
                await asyncio.wait([flight.task])

    def _give_up(self, flight: Flight, limit_s: float, *, is_late: bool) -> None:
        assert flight.task is not None
        key, progress = flight.job.key, flight.progress
        self._forget(flight)
        self._retract(flight)  # before another flight of this key begins
        if is_late:
            self._refusals.record(key, progress.too_late(flight.job.timeout_s))
            progress.ended = progress.too_late(limit_s)
        elif progress.deaths:  # who leaves while it is tried again takes no guilt away
            self._refusals.record(key, GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED))
        flight.task.cancel()

    def _ended(self, flight: Flight, task: asyncio.Task[Entry]) -> None:
        self._forget(flight)
        if not task.cancelled():
            task.exception()  # seen, also when every waiter has gone

    def _forget(self, flight: Flight) -> None:
        if self._by_key.get(flight.job.key) is flight:
            del self._by_key[flight.job.key]

    async def _compile_and_land(self, flight: Flight, trace: Context) -> Entry:
        done = await self._compile(flight, trace)
        entry = Entry(flight.job.key, done, leases=flight.waiters)
        self._cache.land(entry)
        flight.entry, flight.compiled = entry, None
        return entry

    def _compiled(self, flight: Flight, message: Compiled) -> None:
        """Have ranks load a grammar while it is being proven."""
        key, before, done = flight.job.key, flight.compiled, message.done
        if self._by_key.get(key) is not flight:  # given up, and its worker not yet dead
            return
        if before is not None and load_of(key, before) != load_of(key, done):
            self._cache.retract(key, before, done)
        flight.compiled = done
        flight.told.set()

    def _retract(self, flight: Flight) -> None:
        """Take back what ranks were told to load of a flight that failed."""
        done, flight.compiled = flight.compiled, None
        if done is not None:
            self._cache.retract(flight.job.key, done)

    async def _compile(self, flight: Flight, trace: Context) -> Done:
        job = flight.job
        span = self._tracer.start_span(c.GRAMMAR_COMPILE, trace)
        flight.span = span.get_span_context()
        contexts.attach(set_span_in_context(span))  # of this flight's task: it ends with it
        attributes: dict[str, Any] = {c.GRAMMAR_KEY: job.key, c.GRAMMAR_KIND: job.kind}
        error_code = c.CANCELLED
        try:
            outcome = await self._pool.compile(job, flight.progress)
            self._record_proofs(outcome, attributes, spans.below(span))
            done = _succeeded(outcome)
            attributes |= {
                c.GRAMMAR_BACKEND: done.backend,
                c.GRAMMAR_BYTES: done.size_bytes,
                c.GRAMMAR_COMPILE_DURATION: done.compile_ns / 1e9,
                c.GRAMMAR_PROOF_DURATION: done.proof_ns / 1e9,
            }
            error_code = ""
        except GuidedError as error:
            error_code = error.code.value
            self._refusals.record(job.key, error)
            raise
        except asyncio.CancelledError:
            if flight.progress.ended is not None:
                error_code = flight.progress.ended.code.value
            raise
        finally:
            if error_code:
                self._retract(flight)
            spans.end(span, error_code=error_code, attributes=attributes)
        return done

    def _record_proofs(self, outcome: Outcome, attributes: dict[str, Any], trace: Context) -> None:
        for proof in outcome.proofs:
            self.proofs["refused" if proof.error_code else "finished" if proof.texts else "unfinished"] += 1
            told = attributes | {c.GRAMMAR_BACKEND: proof.backend}
            span = self._tracer.start_span(c.GRAMMAR_PROOF, trace, attributes=told, start_time=proof.start_ns)
            spans.end(span, error_code=proof.error_code, end_ns=proof.end_ns)


def _succeeded(outcome: Outcome) -> Done:
    if isinstance(outcome, Failed):
        again_s = _RETRY_AFTER_S if outcome.code.retryable else None
        raise GuidedError(outcome.code, outcome.message, path=outcome.path, retry_after_s=again_s)
    return outcome
