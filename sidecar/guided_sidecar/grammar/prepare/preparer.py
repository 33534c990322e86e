"""From Prepare to a proven grammar on all ranks: limits, key, cache, single flight, leases, deadlines."""

import asyncio
import collections
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

from opentelemetry.context import Context
from opentelemetry.trace import Span, Tracer

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind, Prepare, Prepared
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.capacity import Capacity
from guided_sidecar.grammar.pool.compile_progress import CompileProgress
from guided_sidecar.grammar.pool.pool import Pool
from guided_sidecar.grammar.prepare.cache import Entry, GrammarCache
from guided_sidecar.grammar.prepare.cache_keys import choice, grammar_key, taken
from guided_sidecar.grammar.prepare.cache_state import CacheState
from guided_sidecar.grammar.prepare.jobs import job_of, keywords, load_of, prepared
from guided_sidecar.grammar.prepare.refusals import Refusals
from guided_sidecar.grammar.prepare.singleflight import InFlight, SingleFlight
from guided_sidecar.grammar.worker_messages import Job
from guided_sidecar.ranks.load_barrier import Rendezvous
from guided_sidecar.settings import Settings
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.conventions import (
    CANCELLED,
    GRAMMAR_CACHE,
    GRAMMAR_KEY,
    GRAMMAR_KIND,
    GRAMMAR_PREPARE,
    GRAMMAR_UNENFORCED,
)


@dataclasses.dataclass(slots=True)
class _Waiter:
    """One Prepare on its way; `stage` says what it waits for, should its time run out."""

    request: Prepare
    limit_s: float
    span: Span
    until: float  # monotonic seconds
    stage: str = "template"
    key: str = ""
    tokenizer: Mapping[Backend, str] = dataclasses.field(default_factory=dict)  # that the key is for
    cache: str = ""
    flight: InFlight | None = None


class Preparer:
    """Prepares grammars and keeps the leases on them.

    Parameters
    ----------
    settings
        Limits and sizes.
    capacity
        What the container has.
    pool
        Compiles.
    rendezvous
        The ranks.
    tracer
        Makes grammar.prepare and grammar.compile.
    """

    def __init__(
        self, settings: Settings, capacity: Capacity, pool: Pool, rendezvous: Rendezvous, tracer: Tracer
    ) -> None:
        self._pod = settings.pod
        # Half of the folder: what is being compiled is written before it is counted.
        room_bytes = artifacts.room_bytes(Path(settings.pod.run_dir)) // 2
        self._artifact_bytes = capacity.artifact_bytes(min(settings.artifact_bytes, room_bytes))
        self._capacity = capacity
        self._pool = pool
        self._rendezvous = rendezvous
        self._tracer = tracer
        self._cache = GrammarCache(
            settings.cache_entries,
            settings.cache_bytes,
            self._artifact_bytes,
            settings.pod.grammars_folder,
            rendezvous,
        )
        self._refusals = Refusals(settings.refusal_entries, settings.refusal_s)
        self._answers: collections.Counter[str] = collections.Counter()
        self._single_flight = SingleFlight(pool, self._refusals, tracer, self._cache)
        self._unenforced = 0  # requests
        self._held = 0  # leases of the service's own, by `hold`

    @property
    def state(self) -> CacheState:
        """What is kept, and what became of all that was asked for."""
        cache = self._cache
        return CacheState(
            entries=len(cache),
            size_bytes=cache.size_bytes,
            leased_bytes=cache.leased_bytes,
            leases=cache.leases - self._held,
            evictions=cache.evictions,
            answers=dict(self._answers),
            proofs=dict(self._single_flight.proofs),
            unenforced=self._unenforced,
        )

    async def prepare(
        self, request: Prepare, loaded: Callable[[Prepared], None] = lambda _prepared: None
    ) -> Prepared:
        """Compile, prove and load a grammar; on return the caller has a lease on it, ended by `release`.

        Parameters
        ----------
        loaded
            Called at most once, if every rank has loaded the grammar before it is proven.

        Raises
        ------
        GuidedError
            Why it cannot be used. Never anything else but cancellation.
        """
        with self._waiter(request, spans.remote(request.traceparent, request.tracestate)) as waiter:
            async with self._within_limit(waiter):
                entry = await self._compiled(waiter, loaded)
                await self._load(waiter, entry)
            done = entry.done
            if done.unenforced:
                self._unenforced += 1
                waiter.span.set_attribute(GRAMMAR_UNENFORCED, keywords(done.unenforced))
        return prepared(request.id, entry.key, done)

    async def hold(self, kind: Kind, spec: str) -> Entry:
        """Prepare a grammar that stays until `let_go`; the deadline is for the compile, not for the ranks.

        Raises
        ------
        GuidedError
            As `prepare` does.
        """
        timeout_s = self._pod.guided_decoding.compile.timeout_s
        request = Prepare(id=0, kind=kind, spec=spec, timeout_s=timeout_s)
        with self._waiter(request, spans.NEVER) as waiter:  # nobody's request
            async with self._within_limit(waiter):
                entry = await self._compiled(waiter)
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
        if self._cache.get(key) is not None or self._single_flight.under_way(key) is not None:
            message = "computing one token of the grammar took a rank too long"
            self._refusals.record(key, GuidedError(ErrorCode.GRAMMAR_SLOW, message))

    def release(self, key: str) -> None:
        """End one lease."""
        self._cache.release(key)

    @contextlib.contextmanager
    def _waiter(self, request: Prepare, trace: Context) -> Iterator[_Waiter]:
        cap = self._pod.guided_decoding.compile.timeout_s
        span = self._tracer.start_span(GRAMMAR_PREPARE, trace, attributes={GRAMMAR_KIND: request.kind})
        limit_s = min(request.timeout_s, cap) if request.timeout_s > 0 else 0.0  # 0 for NaN too
        waiter = _Waiter(request, limit_s, span, time.monotonic() + limit_s)
        error_code = CANCELLED
        try:
            yield waiter
            error_code = ""
        except GuidedError as error:
            error_code = error.code.value
            raise
        finally:
            self._answers[waiter.cache] += 1
            attributes = {GRAMMAR_KEY: waiter.key, GRAMMAR_CACHE: waiter.cache}
            spans.end(span, error_code=error_code, attributes=attributes)

    @contextlib.asynccontextmanager
    async def _within_limit(self, waiter: _Waiter) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(waiter.limit_s):
                yield
        except TimeoutError as error:
            raise self._too_late(waiter) from error

    async def _compiled(self, waiter: _Waiter, loaded: Callable[[Prepared], None] | None = None) -> Entry:
        """Return a proven grammar, with a lease on it."""
        request = waiter.request
        limits = self._pod.guided_decoding.compile
        spec = taken(request.kind, request.spec, limits.max_schema_bytes)
        facts = await self._pool.facts()
        self._rendezvous.check(facts.tokenizer)
        waiter.tokenizer = facts.tokenizer
        waiter.key = key = grammar_key(request.kind, spec, choice(request, self._pod), self._pod, facts)
        waiter.cache = "refused"
        self._refusals.check(key)
        entry = self._cache.get(key)
        if entry is None:
            waiter.cache = "miss"
            waiter.stage = "compile"
            memory_bytes = self._capacity.compile_bytes(
                limits.memory_bytes, self._artifact_bytes, facts.resident_bytes
            )
            job = job_of(request, key, spec, facts, self._pod, memory_bytes)
            entry = await self._join(waiter, job, loaded)
        else:
            waiter.cache = "hit"
            entry.leases += 1
        waiter.stage = "ranks"
        return entry

    async def _load(self, waiter: _Waiter, entry: Entry) -> None:
        """Wait until every rank has loaded a grammar; where that fails, its lease ends."""
        try:
            load = load_of(entry.key, entry.done)
            await self._rendezvous.ensure(load, waiter.tokenizer, spans.below(waiter.span))
        except BaseException as error:
            self._cache.end_lease(entry)
            if isinstance(error, GuidedError) and not entry.leases:
                self._cache.drop(entry)  # perhaps the artefact is damaged: the next request compiles it again
            raise

    async def _join(self, waiter: _Waiter, job: Job, loaded: Callable[[Prepared], None] | None) -> Entry:
        """Wait for the key's flight, starting one if there is none."""
        flight = self._single_flight.under_way(waiter.key)
        if flight is None:
            flight = self._single_flight.start(job, spans.below(waiter.span))
        else:
            waiter.cache = "joined"
        waiter.flight = flight
        loading = asyncio.create_task(self._load_unproven(waiter, flight, loaded)) if loaded else None
        try:
            return await self._single_flight.wait(flight, waiter.limit_s, waiter.until)
        finally:
            if loading is not None:
                loading.cancel()
            if waiter.cache == "joined" and flight.span is not None:
                waiter.span.add_link(flight.span)

    async def _load_unproven(
        self, waiter: _Waiter, flight: InFlight, loaded: Callable[[Prepared], None]
    ) -> None:
        """Have the ranks load what is compiled, and say so; whoever waits for the flight cancels this.

        What fails here is said when it fails again, once the grammar is proven.
        """
        await flight.told.wait()
        trace = spans.below(waiter.span)
        if flight.compiled is None:  # proven or refused since
            return
        with contextlib.suppress(GuidedError):
            load = load_of(flight.key, flight.compiled)
            await self._rendezvous.ensure(load, waiter.tokenizer, trace)
            loaded(prepared(waiter.request.id, flight.key, flight.compiled, is_proven=False))

    def _too_late(self, waiter: _Waiter) -> GuidedError:
        """Say what a waiter whose time ran out was waiting for."""
        limit = f"{waiter.limit_s:g} s"
        if waiter.stage == "ranks":
            return self._rendezvous.too_late(waiter.key, limit)
        if waiter.stage == "template":
            message = f"the grammar service did not become ready within {limit}"
            return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message, retry_after_s=1)
        progress = waiter.flight.progress if waiter.flight is not None else CompileProgress(waiter.limit_s)
        return self._pool.too_late(waiter.limit_s, progress)
