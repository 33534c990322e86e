"""From Prepare to a proven grammar on all ranks: limits, key, cache, single flight, leases, deadlines."""

import asyncio
import collections
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from opentelemetry.context import Context
from opentelemetry.trace import Span, Tracer

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind, Prepare, Prepared
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.capacity import Capacity
from guided_sidecar.grammar.pool.pool import Pool
from guided_sidecar.grammar.prepare.cache import CacheState, Entry, GrammarCache
from guided_sidecar.grammar.prepare.flights import Flight, Flights
from guided_sidecar.grammar.prepare.jobs import job_of, load_of
from guided_sidecar.grammar.prepare.refusals import Refusals
from guided_sidecar.grammar.worker_messages import Done, Job
from guided_sidecar.ranks.load_barrier import LoadBarrier
from guided_sidecar.settings import Settings
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import spans


@dataclasses.dataclass(slots=True, eq=False)
class _Waiter:
    """One Prepare on its way: what it has so far says what it waits for, should its time run out."""

    request: Prepare
    span: Span
    limit_s: float
    limit: asyncio.Timeout
    job: Job | None = None
    cache: str = ""
    flight: Flight | None = None
    entry: Entry | None = None


class Preparer:
    """Prepares grammars and keeps the leases on them; `tracer` makes grammar.prepare and grammar.compile."""

    def __init__(
        self, settings: Settings, capacity: Capacity, pool: Pool, load_barrier: LoadBarrier, tracer: Tracer
    ) -> None:
        self._pod = settings.pod
        # Half of the folder: what is being compiled is written before it is counted.
        room_bytes = artifacts.room_bytes(Path(settings.pod.run_dir)) // 2
        self._artifact_bytes = capacity.artifact_bytes(min(settings.artifact_bytes, room_bytes))
        self._capacity = capacity
        self._pool = pool
        self._load_barrier = load_barrier
        self._tracer = tracer
        self._cache = GrammarCache(
            settings.cache_entries,
            settings.cache_bytes,
            self._artifact_bytes,
            settings.pod.grammars_folder,
            load_barrier,
        )
        self._refusals = Refusals(settings.refusal_entries, settings.refusal_s)
        self._answers: collections.Counter[str] = collections.Counter()
        self._flights = Flights(pool, self._refusals, tracer, self._cache)
        self._unenforced = 0  # requests
        self._held = 0  # leases of the service's own, by `hold`

    @property
    def state(self) -> CacheState:
        """What is kept, and what became of all that was asked for."""
        cache = self._cache.state
        return dataclasses.replace(
            cache,
            leases=cache.leases - self._held,
            answers=dict(self._answers),
            proofs=dict(self._flights.proofs),
            unenforced=self._unenforced,
        )

    async def prepare(
        self, request: Prepare, loaded: Callable[[Prepared], None] = lambda _prepared: None
    ) -> Prepared:
        """Compile, prove and load a grammar; on return the caller has a lease on it, ended by `release`.

        `loaded` is called at most once, if every rank has loaded the grammar before it is proven.
        GuidedError: why it cannot be used.
        """
        async with self._waiter(request, spans.remote(request.traceparent, request.tracestate)) as waiter:
            entry = await self._compiled(waiter, loaded)
            await self._load(waiter, entry)
            if unenforced := entry.done.unenforced:
                self._unenforced += 1
                keywords = ",".join(sorted({one.keyword for one in unenforced}))
                waiter.span.set_attribute(c.GRAMMAR_UNENFORCED, keywords)
        return _prepared(request, entry.key, entry.done)

    async def hold(self, kind: Kind, spec: str) -> Entry:
        """Prepare a grammar that stays until `let_go`; the deadline is for the compile, not for the ranks."""
        timeout_s = self._pod.guided_decoding.compile.timeout_s
        request = Prepare(id=0, kind=kind, spec=spec, timeout_s=timeout_s)
        async with self._waiter(request, spans.NEVER) as waiter:  # nobody's request
            entry = await self._compiled(waiter)
            waiter.limit.reschedule(None)
            self._held += 1
            try:
                await self._load(waiter, entry)
            except BaseException:
                self._held -= 1
                raise
        return entry

    def let_go(self, key: str) -> None:
        """End one `hold`."""
        self._held -= 1
        self.release(key)

    def found_slow(self, key: str) -> None:
        """Refuse a grammar for a while that took a rank too long for one token; a key may be unknown here."""
        if self._cache.get(key) is not None or self._flights.get(key) is not None:
            message = "computing one token of the grammar took a rank too long"
            self._refusals.record(key, GuidedError(ErrorCode.GRAMMAR_SLOW, message))

    def release(self, key: str) -> None:
        """End one lease."""
        self._cache.release(key)

    @contextlib.asynccontextmanager
    async def _waiter(self, request: Prepare, trace: Context) -> AsyncIterator[_Waiter]:
        cap = self._pod.guided_decoding.compile.timeout_s
        limit_s = min(request.timeout_s, cap) if request.timeout_s > 0 else 0.0  # 0 for NaN too
        span = self._tracer.start_span(c.GRAMMAR_PREPARE, trace, attributes={c.GRAMMAR_KIND: request.kind})
        waiter = _Waiter(request, span, limit_s, asyncio.timeout(limit_s))
        error_code = c.CANCELLED
        try:
            try:
                async with waiter.limit:
                    yield waiter
            except TimeoutError as error:
                raise self._too_late(waiter) from error
            error_code = ""
        except GuidedError as error:
            error_code = error.code.value
            raise
        finally:
            self._answers[waiter.cache] += 1
            key = waiter.job.key if waiter.job is not None else ""
            attributes = {c.GRAMMAR_KEY: key, c.GRAMMAR_CACHE: waiter.cache}
            spans.end(span, error_code=error_code, attributes=attributes)

    async def _compiled(self, waiter: _Waiter, loaded: Callable[[Prepared], None] | None = None) -> Entry:
        """Return a proven grammar, with a lease on it."""
        facts = await self._pool.facts()
        self._load_barrier.check(facts.tokenizer)
        most_bytes = self._pod.guided_decoding.compile.memory_bytes
        memory_bytes = self._capacity.compile_bytes(most_bytes, self._artifact_bytes, facts.resident_bytes)
        waiter.job = job = job_of(waiter.request, self._pod, facts, memory_bytes)
        waiter.cache = "refused"
        self._refusals.check(job.key)
        if (entry := self._cache.get(job.key)) is not None:
            waiter.cache = "hit"
            entry.leases += 1
        else:
            entry = await self._join(waiter, job, loaded)
        waiter.entry = entry
        return entry

    async def _join(self, waiter: _Waiter, job: Job, loaded: Callable[[Prepared], None] | None) -> Entry:
        """Wait for the key's flight, starting one if there is none."""
        flight = self._flights.get(job.key)
        waiter.cache = "miss" if flight is None else "joined"
        waiter.flight = flight = flight or self._flights.start(job, spans.below(waiter.span))
        loading = asyncio.create_task(self._load_unproven(waiter, flight, loaded)) if loaded else None
        try:
            return await self._flights.wait(flight, waiter.limit_s, waiter.limit)
        finally:
            if loading is not None:
                loading.cancel()
            if waiter.cache == "joined" and flight.span is not None:
                waiter.span.add_link(flight.span)

    async def _load_unproven(
        self, waiter: _Waiter, flight: Flight, loaded: Callable[[Prepared], None]
    ) -> None:
        """Have the ranks load what is compiled, and say so; whoever waits for the flight cancels this.

        What fails here is said when it fails again, once the grammar is proven.
        """
        await flight.told.wait()
        key, done = flight.job.key, flight.compiled
        if done is None:  # proven or refused since
            return
        with contextlib.suppress(GuidedError):
            await self._load_barrier.ensure(
                load_of(key, done), flight.job.tokenizer, spans.below(waiter.span)
            )
            loaded(_prepared(waiter.request, key, flight.compiled or done, is_proven=False))

    async def _load(self, waiter: _Waiter, entry: Entry) -> None:
        """Wait until every rank has loaded a grammar; where that fails, its lease ends."""
        assert waiter.job is not None
        try:
            load = load_of(entry.key, entry.done)
            await self._load_barrier.ensure(load, waiter.job.tokenizer, spans.below(waiter.span))
        except BaseException as error:
            self.release(entry.key)
            if isinstance(error, GuidedError) and not entry.leases:
                self._cache.drop(entry)  # perhaps the artefact is damaged: the next request compiles it again
            raise

    def _too_late(self, waiter: _Waiter) -> GuidedError:
        """Say what a waiter whose time ran out was waiting for."""
        limit = f"{waiter.limit_s:g} s"
        if waiter.entry is not None:
            return self._load_barrier.too_late(waiter.entry.key, limit)
        if waiter.flight is not None:
            return self._pool.too_late(waiter.limit_s, waiter.flight.progress)
        message = f"the grammar service did not become ready within {limit}"
        return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message, retry_after_s=1)


def _prepared(request: Prepare, key: str, done: Done, *, is_proven: bool = True) -> Prepared:
    paths = [one.path for one in done.unenforced]
    return Prepared(id=request.id, key=key, backend=done.backend, unenforced=paths, is_proven=is_proven)
