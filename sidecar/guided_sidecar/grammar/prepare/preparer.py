"""From Prepare to a proven grammar on all ranks: limits, key, cache, single flight, leases, deadlines."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable

from opentelemetry.context import Context
from opentelemetry.trace import Span, Tracer

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind, Prepare, Prepared
from guided_sidecar.grammar.capacity import Capacity
from guided_sidecar.grammar.pool.pool import Pool
from guided_sidecar.grammar.prepare.jobs import job_of, load_of
from guided_sidecar.grammar.prepare.known import Grammar, Known, KnownState
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
    grammar: Grammar | None = None
    is_proven: bool = False


class Preparer:
    """Prepares grammars and keeps the leases on them; `tracer` makes grammar.prepare and grammar.compile."""

    def __init__(
        self, settings: Settings, capacity: Capacity, pool: Pool, load_barrier: LoadBarrier, tracer: Tracer
    ) -> None:
        self._pod = settings.pod
        self._room_bytes = capacity.room_bytes(settings.room_bytes)
        self._capacity = capacity
        self._pool = pool
        self._load_barrier = load_barrier
        self._tracer = tracer
        self._known = Known(settings, self._room_bytes, pool, load_barrier, tracer)

    @property
    def state(self) -> KnownState:
        """What is kept, and what became of all that was asked for."""
        return self._known.state

    async def prepare(
        self, request: Prepare, loaded: Callable[[Prepared], None] = lambda _prepared: None
    ) -> Prepared:
        """Compile, prove and load a grammar; on return the caller has a lease on it, ended by `release`.

        `loaded` is called at most once, if every rank has loaded the grammar before it is proven.
        GuidedError: why it cannot be used.
        """
        async with self._waiter(request, spans.remote(request.traceparent, request.tracestate)) as waiter:
            grammar = await self._proven(waiter, loaded)
            done = await self._load(waiter, grammar)
            if unenforced := done.unenforced:
                self._known.counts.unenforced += 1
                keywords = ",".join(sorted({one.keyword for one in unenforced}))
                waiter.span.set_attribute(c.GRAMMAR_UNENFORCED, keywords)
        return _prepared(request, grammar.key, done)

    async def hold(self, kind: Kind, spec: str) -> Grammar:
        """Prepare a grammar that stays until `release`; the deadline is the compile's, not the ranks'."""
        timeout_s = self._pod.guided_decoding.compile.timeout_s
        request = Prepare(id=0, kind=kind, spec=spec, timeout_s=timeout_s)
        async with self._waiter(request, spans.NEVER) as waiter:  # nobody's request
            grammar = await self._proven(waiter)
            waiter.limit.reschedule(None)
            await self._load(waiter, grammar)
        return grammar

    def found_slow(self, key: str) -> None:
        """Refuse a grammar for a while that took a rank too long for one token; a key may be unknown here."""
        if self._known.kept(key) is not None or self._known.compiling(key) is not None:
            message = "a rank took too long to compute a token of the grammar"
            self._known.refusals.record(key, GuidedError(ErrorCode.GRAMMAR_SLOW, message))

    def release(self, key: str) -> None:
        """End one lease."""
        self._known.release(key)

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
            self._known.counts.answers[waiter.cache or "none"] += 1
            key = waiter.job.key if waiter.job is not None else ""
            attributes = {c.GRAMMAR_KEY: key, c.GRAMMAR_CACHE: waiter.cache}
            spans.end(span, error_code=error_code, attributes=attributes)

    async def _proven(self, waiter: _Waiter, loaded: Callable[[Prepared], None] | None = None) -> Grammar:
        """Return a proven grammar, with a lease on it; whoever asks first for one has it compiled."""
        facts = await self._pool.facts()
        self._load_barrier.check(facts.tokenizer)
        most_bytes = self._pod.guided_decoding.compile.memory_bytes
        memory_bytes = self._capacity.compile_bytes(most_bytes, self._room_bytes, facts.resident_bytes)
        waiter.job = job = job_of(waiter.request, self._pod, facts, memory_bytes)
        waiter.cache = "refused"
        self._known.refusals.check(job.key)
        if (grammar := self._known.kept(job.key)) is not None:
            waiter.cache = "hit"
            self._known.lease(job.key)
        else:
            grammar = self._known.compiling(job.key)
            waiter.cache = "miss" if grammar is None else "joined"
            waiter.grammar = grammar = grammar or self._known.compile(job, spans.below(waiter.span))
            loading = asyncio.create_task(self._load_unproven(waiter, grammar, loaded)) if loaded else None
            try:
                await self._known.wait(grammar, waiter.limit_s, waiter.limit)
            finally:
                if loading is not None:
                    loading.cancel()
                if waiter.cache == "joined" and grammar.span is not None:
                    waiter.span.add_link(grammar.span)
        waiter.grammar, waiter.is_proven = grammar, True
        return grammar

    async def _load_unproven(
        self, waiter: _Waiter, grammar: Grammar, loaded: Callable[[Prepared], None]
    ) -> None:
        """Have the ranks load what is compiled, and say so; whoever waits for the proof cancels this.

        What fails here is said when it fails again, once the grammar is proven.
        """
        await grammar.compiled.wait()
        done = grammar.done
        if done is not None and self._known.compiling(grammar.key) is grammar:
            with contextlib.suppress(GuidedError):
                await self._ensure(waiter, grammar.key, done)
                if grammar.done is not None:  # else it was given up, and another of its key is loaded
                    loaded(_prepared(waiter.request, grammar.key, grammar.done, is_proven=False))

    async def _load(self, waiter: _Waiter, grammar: Grammar) -> Done:
        """Wait until every rank has loaded a grammar, and return that; where it fails, its lease ends."""
        try:
            done = grammar.proven
            await self._ensure(waiter, grammar.key, done)
        except BaseException as error:
            self.release(grammar.key)
            if isinstance(error, GuidedError) and error.code is ErrorCode.GRAMMAR_LOAD_FAILED:
                self._known.drop(grammar)  # the next request compiles it
            raise
        return done

    async def _ensure(self, waiter: _Waiter, key: str, done: Done) -> None:
        assert waiter.job is not None
        trace = spans.below(waiter.span)
        await self._load_barrier.ensure(load_of(key, done), waiter.job.tokenizer, trace)

    def _too_late(self, waiter: _Waiter) -> GuidedError:
        """Say what a waiter whose time ran out was waiting for."""
        limit = f"{waiter.limit_s:g} s"
        if waiter.grammar is not None and waiter.is_proven:
            return self._load_barrier.too_late(waiter.grammar.key, limit)
        if waiter.grammar is not None:
            return self._pool.too_late(waiter.limit_s, waiter.grammar.progress)
        message = f"the grammar service did not become ready within {limit}"
        return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message, retry_after_s=1)


def _prepared(request: Prepare, key: str, done: Done, *, is_proven: bool = True) -> Prepared:
    paths = [one.path for one in done.unenforced]
    return Prepared(id=request.id, key=key, backend=done.backend, unenforced=paths, is_proven=is_proven)
