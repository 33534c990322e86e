"""From Prepare to Prepared: limits, key, one flight per key, cache, leases, and the ranks.

A flight is one compile and all who wait for it. Each waiter has its own deadline; the last to leave ends the
flight, and with it the worker.
"""

import asyncio
import dataclasses
import time
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Load, Prepare, Prepared
from guided_sidecar.grammar import artifacts, limits
from guided_sidecar.grammar.cache import Entry, GrammarCache, Verdicts
from guided_sidecar.grammar.disk import GrammarDisk
from guided_sidecar.grammar.jobs import Done, Failed, Job, Outcome
from guided_sidecar.grammar.keys import backends, grammar_key
from guided_sidecar.grammar.pool import Pool
from guided_sidecar.rendezvous import Rendezvous
from guided_sidecar.settings import Settings
from guided_sidecar.telemetry.conventions import (
    GRAMMAR_BACKEND,
    GRAMMAR_BYTES,
    GRAMMAR_CACHE,
    GRAMMAR_COMPILE,
    GRAMMAR_COMPILE_DURATION,
    GRAMMAR_KEY,
    GRAMMAR_KIND,
    GRAMMAR_PREPARE,
    GRAMMAR_PROOF_DURATION,
)
from guided_sidecar.telemetry.spans import OpenSpan, Spans

# A waiter whose compile had less than this share of its time was short of a worker, which is not its fault.
_FAIR_SHARE = 0.5
_FLIGHT_LEASE_S = 1.0
_CANCELLED: Final = (
    "cancelled"  # a span's error when its client has gone: nobody is told a code of the catalogue
)


@dataclasses.dataclass(slots=True)
class _Flight:
    task: asyncio.Task[Entry]
    waiters: int = 0
    started: float | None = None  # monotonic seconds at which a worker had it
    from_disk: bool = False


@dataclasses.dataclass(slots=True)
class _Waiter:
    """One Prepare on its way; `stage` says what it waits for, should its time run out."""

    request: Prepare
    limit_s: float
    span: OpenSpan
    until: float  # monotonic seconds
    stage: str = "template"
    key: str = ""
    cache: str = "miss"
    flight: _Flight | None = None


class Preparer:
    """Prepares grammars and keeps the leases on them.

    Parameters
    ----------
    settings
        Limits and sizes.
    pool
        Compiles.
    disk
        What was compiled before.
    rendezvous
        The ranks.
    spans
        Where grammar.prepare and grammar.compile go.
    """

    def __init__(
        self, settings: Settings, pool: Pool, disk: GrammarDisk, rendezvous: Rendezvous, spans: Spans
    ) -> None:
        self._pod = settings.pod
        self._pool = pool
        self._disk = disk
        self._rendezvous = rendezvous
        self._spans = spans
        self._cache = GrammarCache(settings.cache_entries, settings.cache_bytes)
        self._verdicts = Verdicts(
            settings.verdict_entries, settings.quarantine_after, settings.pod.restart.reset_after_s
        )
        self._flights: dict[str, _Flight] = {}

    @property
    def leases(self) -> int:
        """Leases on all grammars together."""
        return self._cache.leases

    async def prepare(self, request: Prepare) -> Prepared:
        """Compile, prove and load a grammar; on return the caller has a lease on it, ended by `release`.

        Raises
        ------
        GuidedError
            Why it cannot be used. Never anything else but cancellation.
        """
        cap = self._pod.guided_decoding.compile.timeout_s
        span = self._spans.start(
            GRAMMAR_PREPARE,
            traceparent=request.traceparent,
            attributes={GRAMMAR_KIND: request.kind},
        )
        limit_s = min(request.timeout_s, cap) if request.timeout_s > 0 else 0.0  # 0 for NaN too
        waiter = _Waiter(request, limit_s, span, time.monotonic() + limit_s)
        error_code = _CANCELLED
        try:
            prepared = await self._within_limit(waiter)
            error_code = ""
        except GuidedError as error:
            error_code = error.code.value
            raise
        else:
            return prepared
        finally:
            attributes = {GRAMMAR_KEY: waiter.key, GRAMMAR_CACHE: waiter.cache}
            span.end(error_code=error_code, attributes=attributes)

    def release(self, key: str) -> None:
        """End one lease."""
        entry = self._cache.get(key)
        if entry is not None and entry.leases:
            self._end_lease(entry)

    async def _within_limit(self, waiter: _Waiter) -> Prepared:
        try:
            async with asyncio.timeout(waiter.limit_s):
                return await self._prepare(waiter)
        except TimeoutError as error:
            raise self._too_late(waiter) from error

    async def _prepare(self, waiter: _Waiter) -> Prepared:
        request = waiter.request
        spec = limits.canonical(request.kind, request.spec, self._pod.guided_decoding.compile)
        facts = await self._pool.facts()
        waiter.key = key = grammar_key(
            request.kind, spec, backends(request.backend, self._pod), self._pod, facts
        )
        entry = self._cache.get(key)
        if entry is None:
            self._verdicts.check(key, time.monotonic())
            waiter.stage = "compile"
            entry = await self._join(waiter, spec)
        else:
            waiter.cache = "hit"
        waiter.stage = "ranks"
        entry.leases += 1
        try:
            await self._rendezvous.ensure(_load(entry, waiter.span.traceparent))
        except BaseException as error:
            self._end_lease(entry)
            if isinstance(error, GuidedError) and not entry.leases:
                self._drop(entry)  # perhaps the artefact is damaged: the next request compiles it again
            raise
        return Prepared(id=request.id, key=key, backend=entry.done.backend)

    async def _join(self, waiter: _Waiter, spec: str) -> Entry:
        """Wait for the key's flight, starting one if there is none; the last to leave ends it."""
        flight = self._flights.get(waiter.key)
        if flight is None:
            flight = self._start(waiter, spec)
        else:
            waiter.cache = "joined"
        waiter.flight = flight
        flight.waiters += 1
        try:
            entry = await asyncio.shield(flight.task)
            if flight.from_disk and waiter.cache == "miss":
                waiter.cache = "disk"
            return entry
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._flights.pop(waiter.key, None)
                late = time.monotonic() >= waiter.until
                flight.task.cancel(ErrorCode.GRAMMAR_COMPILE_TIMEOUT.value if late else _CANCELLED)
                # The answer is given when the worker is gone from the process table.
                await asyncio.wait([flight.task])

    def _start(self, waiter: _Waiter, spec: str) -> _Flight:
        compile_config = self._pod.guided_decoding.compile
        job = Job(
            key=waiter.key,
            kind=waiter.request.kind,
            spec=spec,
            backends=backends(waiter.request.backend, self._pod),
            any_whitespace=self._pod.guided_decoding.whitespace == "Flexible",
            timeout_s=compile_config.timeout_s,
            memory_bytes=compile_config.memory_bytes,
        )
        task = asyncio.create_task(self._fly(job, waiter.span.traceparent))
        flight = self._flights[waiter.key] = _Flight(task)
        task.add_done_callback(lambda _: self._landed(job.key, flight))
        return flight

    def _landed(self, key: str, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.task.cancelled():
            flight.task.exception()  # seen, also when every waiter has gone

    async def _fly(self, job: Job, traceparent: str) -> Entry:
        done = await self._disk.get(job.key)
        if done is None:
            done = await self._compile(job, traceparent)
            self._disk.put(job.key, done)
        elif flight := self._flights.get(job.key):
            flight.from_disk = True
        # The flight's own lease keeps the grammar until those who waited have taken theirs.
        entry = Entry(job.key, done, leases=1)
        self._cache.add(entry)
        asyncio.get_running_loop().call_later(_FLIGHT_LEASE_S, self.release, job.key)
        return entry

    async def _compile(self, job: Job, traceparent: str) -> Done:
        span = self._spans.start(GRAMMAR_COMPILE, traceparent=traceparent)
        attributes: dict[str, Any] = {GRAMMAR_KEY: job.key, GRAMMAR_KIND: job.kind}
        error_code = _CANCELLED
        try:
            done = await self._compile_in_a_worker(job)
            attributes |= {
                GRAMMAR_BACKEND: done.backend,
                GRAMMAR_BYTES: done.size_bytes,
                GRAMMAR_COMPILE_DURATION: done.compile_ns / 1e9,
                GRAMMAR_PROOF_DURATION: done.proof_ns / 1e9,
            }
            error_code = ""
        except GuidedError as error:
            error_code = error.code.value
            raise
        except asyncio.CancelledError as error:
            error_code = str(error.args[0]) if error.args else _CANCELLED
            raise
        else:
            return done
        finally:
            span.end(error_code=error_code, attributes=attributes)

    async def _compile_in_a_worker(self, job: Job) -> Done:
        def started() -> None:
            flight = self._flights.get(job.key)
            if flight is not None:
                flight.started = time.monotonic()

        try:
            done = _succeeded(await self._pool.compile(job, started))
        except GuidedError as error:
            self._verdicts.record(job.key, error, time.monotonic())
            raise
        self._verdicts.forgive(job.key)
        return done

    def _too_late(self, waiter: _Waiter) -> GuidedError:
        """Say what a waiter whose time ran out was waiting for."""
        limit = f"{waiter.limit_s:g} s"
        if waiter.stage == "ranks":
            missing = self._rendezvous.missing(waiter.key)
            return GuidedError(ErrorCode.GRAMMAR_RANKS_NOT_READY, f"{missing} after {limit}", retry_after_s=1)
        if waiter.stage == "template":
            message = f"the grammar service was not ready within {limit}"
            return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message, retry_after_s=1)
        started = waiter.flight.started if waiter.flight is not None else None
        if started is None or time.monotonic() - started < _FAIR_SHARE * waiter.limit_s:
            message = f"all grammar workers were busy for {limit}"
            return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message, retry_after_s=1)
        error = GuidedError(ErrorCode.GRAMMAR_COMPILE_TIMEOUT, f"the grammar did not compile within {limit}")
        self._pool.note(error.code, error.message)
        if waiter.flight is not None and waiter.limit_s >= self._pod.guided_decoding.compile.timeout_s:
            self._verdicts.record(waiter.key, error, time.monotonic())
        return error

    def _end_lease(self, entry: Entry) -> None:
        entry.leases -= 1
        if entry.leases:
            return
        self._rendezvous.rest(entry.key)
        for unused in self._cache.evict():
            self._discard(unused)

    def _drop(self, entry: Entry) -> None:
        self._cache.remove(entry.key)
        self._discard(entry)
        self._disk.drop(entry.key)

    def _discard(self, entry: Entry) -> None:
        self._rendezvous.forget(entry.key)
        if entry.done.artifact is not None:
            artifacts.remove(self._pod.grammars_folder, entry.done.artifact)


def _succeeded(outcome: Outcome) -> Done:
    if isinstance(outcome, Failed):
        raise GuidedError(ErrorCode(outcome.code), outcome.message, path=outcome.path)
    return outcome


def _load(entry: Entry, traceparent: str) -> Load:
    done = entry.done
    return Load(
        key=entry.key,
        backend=done.backend,
        artifact=done.artifact,
        sha256=done.sha256,
        spec=done.spec,
        positions=done.positions,
        traceparent=traceparent,
    )
