"""What is known of each grammar: it is being compiled, is kept, or was refused a while ago."""

import asyncio
import dataclasses
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Literal

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, Tracer, set_span_in_context

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.pool.pool import Pool, Progress
from guided_sidecar.grammar.prepare.jobs import load_of
from guided_sidecar.grammar.worker_messages import Compiled, Done, Failed, Job, Outcome
from guided_sidecar.ranks.load_barrier import LoadBarrier
from guided_sidecar.settings import Settings
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import spans

# A walk came to the end of a text, which was judged; none did in its time; or the grammar was refused.
ProofResult = Literal["finished", "unfinished", "refused"]


@dataclasses.dataclass(slots=True)
class KnownState:
    """Prepared grammars, and what became of all that was asked for since the service started.

    `answers` are prepares by how their grammar was found: "hit", "joined" (another's compile), "miss",
    "refused" (known to be bad), "none" (ended before it was looked for).
    """

    entries: int = 0
    size_bytes: int = 0  # of all that are kept
    leased_bytes: int = 0  # of these, what nothing may evict
    evictions: int = 0  # for want of room
    leases: int = 0  # of guided requests, and of named grammars
    answers: Counter[str] = dataclasses.field(default_factory=Counter)
    proofs: Counter[ProofResult] = dataclasses.field(default_factory=Counter)
    unenforced: int = 0  # requests that were served although a keyword of theirs is not enforced


@dataclasses.dataclass(slots=True, eq=False)
class Grammar:
    """One grammar, from the begin of its compile on."""

    key: str
    done: Done | None = None  # what ranks may load; until it is kept, it may still be refused
    progress: Progress = dataclasses.field(default_factory=Progress)
    compiled: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)  # `done` has been there
    task: asyncio.Task[None] | None = None
    span: SpanContext | None = None  # its compile's

    @property
    def proven(self) -> Done:
        """What ranks are to load of one that is kept."""
        assert self.done is not None
        return self.done


class Refusals:
    """Refusals by key: at most `most_entries`, for `ttl_s` seconds by a monotonic `clock`."""

    def __init__(self, most_entries: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_entries = most_entries
        self._ttl_s = ttl_s
        self._clock = clock
        self._kept: dict[str, tuple[GuidedError, float]] = {}

    def check(self, key: str) -> None:
        """Raise the known refusal of a key, if there is one."""
        error, until_s = self._kept.get(key, (None, 0.0))
        if error is not None and until_s > self._clock():
            raise GuidedError(error.code, error.message, path=error.path)

    def record(self, key: str, error: GuidedError) -> None:
        """Remember a refusal; one that says nothing about the grammar is not remembered."""
        if not error.code.retryable:
            self._kept.pop(key, None)
            # Without its traceback, which would keep the text.
            again = GuidedError(error.code, error.message, path=error.path)
            self._kept[key] = again, self._clock() + self._ttl_s
            if len(self._kept) > self._most_entries:
                del self._kept[next(iter(self._kept))]


class Known:
    """Grammars by key: one compile for all who ask for the same, then kept as long as leases or room allow.

    The one whose last lease ended first goes first, but never one with a lease. `room_bytes` is what all may
    take, those with a lease included; `load_barrier` hears of what goes; `tracer` makes grammar.compile and
    grammar.proof.
    """

    def __init__(
        self, settings: Settings, room_bytes: int, pool: Pool, load_barrier: LoadBarrier, tracer: Tracer
    ) -> None:
        self._most_entries = settings.cache_entries
        self._most_bytes = min(settings.cache_bytes, room_bytes)
        self._room_bytes = room_bytes
        self._pod = settings.pod
        self._pool = pool
        self._load_barrier = load_barrier
        self._tracer = tracer
        self._compiling: dict[str, Grammar] = {}
        self._kept: dict[str, Grammar] = {}
        # Those without a lease; the first is to be found, which a dict does behind all that were deleted.
        self._resting: OrderedDict[str, Grammar] = OrderedDict()
        self._leases = Counter[str]()  # who may use one, or waits for it
        self.refusals = Refusals(settings.refusal_entries, settings.refusal_s)
        self.counts = KnownState()  # all but entries, leases and what they hold

    @property
    def state(self) -> KnownState:
        """What is kept, and what became of all that was asked for."""
        resting = sum(grammar.proven.size_bytes for grammar in self._resting.values())
        return dataclasses.replace(
            self.counts,
            entries=len(self._kept),
            leased_bytes=self.counts.size_bytes - resting,
            leases=self._leases.total(),
        )

    def kept(self, key: str) -> Grammar | None:
        """Return a grammar that is kept."""
        return self._kept.get(key)

    def compiling(self, key: str) -> Grammar | None:
        """Return a grammar that is being compiled."""
        return self._compiling.get(key)

    def compile(self, job: Job, trace: Context) -> Grammar:
        """Begin to compile; `trace` is of the first who waits for it."""
        grammar = self._compiling[job.key] = Grammar(job.key)
        grammar.progress.tell = lambda message: self._compiled(grammar, message)
        grammar.task = asyncio.create_task(self._compile(grammar, job, trace))
        grammar.task.add_done_callback(lambda task: task.cancelled() or task.exception())  # seen
        return grammar

    async def wait(self, grammar: Grammar, limit_s: float, limit: asyncio.Timeout) -> None:
        """Wait, with a lease, until a grammar is proven; the last who leaves before that ends its compile.

        `limit_s` is how long the caller waits, `limit` tells whether that is over. GuidedError: a refusal.
        """
        assert grammar.task is not None
        self.lease(grammar.key)
        try:
            await asyncio.shield(grammar.task)
        except BaseException:
            self.release(grammar.key)
            if not self._leases[grammar.key] and not grammar.task.done():
                self._give_up(grammar, limit_s, is_late=limit.expired())
                # The answer is given when the worker is gone from the process table.
                await asyncio.wait([grammar.task])
            raise

    def keep(self, grammar: Grammar) -> None:
        """Keep a grammar that is proven.

        GuidedError: grammar_storage_full, as those in use leave it no room.
        """
        self._kept[grammar.key] = grammar
        self.counts.size_bytes += grammar.proven.size_bytes
        if not self._leases[grammar.key]:
            self._resting[grammar.key] = grammar
        self._evict()
        if self.counts.size_bytes > self._room_bytes:
            self.drop(grammar)
            message = (
                f"the grammars in use fill all {self._room_bytes >> 20} MiB reserved for compiled grammars"
            )
            raise GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL, message, retry_after_s=1)

    def lease(self, key: str) -> None:
        """Begin one lease, which lasts even where the grammar has to be compiled again meanwhile."""
        self._leases[key] += 1
        self._resting.pop(key, None)

    def release(self, key: str) -> None:
        """End one lease; without any, a grammar stays while there is room."""
        self._leases[key] -= 1
        if self._leases[key] > 0:
            return
        del self._leases[key]
        if (grammar := self._kept.get(key)) is not None:
            self._resting[key] = grammar
            self._load_barrier.rest(key)
            self._evict()

    def drop(self, grammar: Grammar) -> None:
        """Give up a grammar: take back what ranks were told to load."""
        if self._kept.get(grammar.key) is grammar:
            del self._kept[grammar.key]
            self._resting.pop(grammar.key, None)
            self.counts.size_bytes -= grammar.proven.size_bytes
        done, grammar.done = grammar.done, None
        if done is not None:
            self._load_barrier.forget(grammar.key)

    def _evict(self) -> None:
        while self._resting and (
            len(self._kept) > self._most_entries or self.counts.size_bytes > self._most_bytes
        ):
            self.drop(next(iter(self._resting.values())))
            self.counts.evictions += 1

    def _give_up(self, grammar: Grammar, limit_s: float, *, is_late: bool) -> None:
        assert grammar.task is not None
        key, progress = grammar.key, grammar.progress
        del self._compiling[key]
        self.drop(grammar)  # before another compile of this key begins
        if is_late:
            self.refusals.record(key, progress.too_late(self._pod.guided_decoding.compile.timeout_s))
            progress.ended = progress.too_late(limit_s)
        elif progress.deaths:  # who leaves while it is tried again takes no guilt away
            self.refusals.record(key, GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED))
        grammar.task.cancel()

    def _compiled(self, grammar: Grammar, message: Compiled) -> None:
        """Have ranks load a grammar while it is being proven."""
        if self._compiling.get(grammar.key) is not grammar:  # given up, and its worker not yet dead
            return
        before, done = grammar.done, message.done
        if before is not None and load_of(grammar.key, before) != load_of(grammar.key, done):
            self._load_barrier.forget(grammar.key)
        grammar.done = done
        grammar.compiled.set()

    async def _compile(self, grammar: Grammar, job: Job, trace: Context) -> None:
        span = self._tracer.start_span(c.GRAMMAR_COMPILE, trace)
        grammar.span = span.get_span_context()
        contexts.attach(set_span_in_context(span))  # of this task: it ends with it
        attributes: dict[str, Any] = {c.GRAMMAR_KEY: job.key, c.GRAMMAR_KIND: job.kind}
        error_code = c.CANCELLED
        try:
            outcome = await self._pool.compile(job, grammar.progress)
            self._record_proofs(outcome, attributes, spans.below(span))
            grammar.done = done = _succeeded(outcome)
            attributes |= {
                c.GRAMMAR_BACKEND: done.backend,
                c.GRAMMAR_BYTES: done.size_bytes,
                c.GRAMMAR_COMPILE_DURATION: done.compile_ns / 1e9,
                c.GRAMMAR_PROOF_DURATION: done.proof_ns / 1e9,
            }
            self.keep(grammar)
            error_code = ""
        except GuidedError as error:
            error_code = error.code.value
            self.refusals.record(job.key, error)
            raise
        except asyncio.CancelledError:
            if grammar.progress.ended is not None:
                error_code = grammar.progress.ended.code.value
            raise
        finally:
            if self._compiling.get(job.key) is grammar:
                del self._compiling[job.key]
            if error_code:
                self.drop(grammar)
            spans.end(span, error_code=error_code, attributes=attributes)

    def _record_proofs(self, outcome: Outcome, attributes: dict[str, Any], trace: Context) -> None:
        for proof in outcome.proofs:
            ended: ProofResult = "finished" if proof.texts else "unfinished"
            self.counts.proofs["refused" if proof.error_code else ended] += 1
            told = attributes | {c.GRAMMAR_BACKEND: proof.backend}
            span = self._tracer.start_span(c.GRAMMAR_PROOF, trace, attributes=told, start_time=proof.start_ns)
            spans.end(span, error_code=proof.error_code, end_ns=proof.end_ns)


def _succeeded(outcome: Outcome) -> Done:
    if isinstance(outcome, Failed):
        again_s = 1.0 if outcome.code.retryable else None
        raise GuidedError(outcome.code, outcome.message, path=outcome.path, retry_after_s=again_s)
    return outcome
