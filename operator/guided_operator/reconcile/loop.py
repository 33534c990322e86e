"""The loop: a task for each GuidedModel, woken by what concerns it: observe -> plan -> apply -> report."""

import asyncio
import contextlib
import contextvars
import dataclasses
import datetime as dt
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from guided_operator.builders.pod_paths import Site
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ApiError
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.key import Key, backoff_s
from guided_operator.policy.installation_limits import Limits
from guided_operator.reconcile import tally
from guided_operator.reconcile.apply import Applier, Fault
from guided_operator.reconcile.conditions.progress_deadline import Progress
from guided_operator.reconcile.conditions.situation import Situation
from guided_operator.reconcile.event_recorder import Warn
from guided_operator.reconcile.known import REREAD_SOON_S
from guided_operator.reconcile.observe import REREAD_S, Observer
from guided_operator.reconcile.plan import plan
from guided_operator.reconcile.report import make_status, report
from guided_operator.reconcile.rollout import rollover
from guided_operator.telemetry import logs, tracing
from guided_operator.telemetry.metrics import ModelCounts, OperatorMetrics

logger = logging.getLogger(__name__)

# A change of a child is followed by others: a pod starts, its Deployment counts it. One pass for all of them.
GATHER_S: Final = 0.2
# Others' ConfigMaps, which named grammars are in, are looked at so often; the kubelet takes as long.
GRAMMARS_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Reconciler:
    """One pass over one GuidedModel.

    `now` is wall-clock time, for the status; nothing is decided by it.
    """

    api: ApiServer
    observer: Observer
    applier: Applier
    site: Site
    limits: Limits
    now: Callable[[], dt.datetime]
    counts: ModelCounts
    progress: Progress
    warn: Warn

    async def reconcile(self, key: Key) -> float | None:
        """Make the cluster and the status like the spec; return the seconds until the next look.

        None: there is nothing to look after. Level-triggered: which event woke the key does not matter.

        Raises
        ------
        ApiError
            The API server failed or refused: look again after a backoff.
        """
        with tracing.step("observe"):
            observed = await self.observer.observe(key)
        if observed is None or "deletionTimestamp" in observed.model["metadata"]:
            self.counts.forget(key)
            self.progress.forget(key)
            self.applier.forget(key)
            return None  # the garbage collector takes the children, by their owner references
        with tracing.step("plan"):
            wanted = plan(observed, self.site, self.limits)
        with tracing.step("apply"):
            outcome = await self.applier.apply(observed, wanted)
        situation = Situation(observed, wanted, outcome)
        left_s = self.progress.left_s(situation)
        situation = dataclasses.replace(situation, overdue=left_s == 0)
        with tracing.step("report"):
            status = make_status(situation, self.now())
            written = await report(self.api, self.warn, observed, status)
        if written is not None:
            self.observer.take_written(kinds.MODEL, written)
        conditions = ((one.type, one.status, one.reason) for one in status.conditions)
        self.counts.count(key, conditions, tally.replicas(situation))
        again_s = _again_s(situation, left_s)
        if outcome.faults:
            raise ChildFaultError(outcome.faults, again_s)
        return again_s


def _again_s(situation: Situation, left_s: float | None) -> float:
    """Return the seconds until the next look where no event asks for one sooner."""
    if situation.outcome.turning:
        return rollover.LOOK_S
    again_s = REREAD_S if situation.is_complete else REREAD_SOON_S
    if situation.observed.sources:
        again_s = min(again_s, GRAMMARS_S)
    return min(left_s or again_s, again_s * random.uniform(0.9, 1.0))  # noqa: S311 - spreads load


class ChildFaultError(Exception):
    """Children could not be made as planned; the status says so, and they are tried again after a backoff.

    `reason` is the first one's. `again_s`: when the rest is to be looked at again, at the latest.
    """

    def __init__(self, faults: Sequence[Fault], again_s: float) -> None:
        self.reason = faults[0].reason
        self.again_s = again_s
        super().__init__("; ".join(fault.message for fault in faults))


@dataclass(slots=True)
class _Woken:
    """Whether, and since when, a model waits for a pass."""

    event: asyncio.Event
    since_s: float


class Loops:
    """The models' tasks.

    Parameters
    ----------
    reconciler
        Makes the passes.
    metrics
        Counts them.
    at_once
        Passes at a time.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        metrics: OperatorMetrics,
        at_once: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reconciler = reconciler
        self._metrics = metrics
        self._slots = asyncio.Semaphore(at_once)
        self._clock = clock
        self._woken: dict[Key, _Woken] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = asyncio.Event()
        self._context = contextvars.copy_context()  # no pass is part of what woke it

    def begin(self) -> None:
        """Let passes begin: what there is has been seen."""
        self._began.set()

    def depth(self) -> int:
        """Return how many models wait for a pass."""
        return sum(each.event.is_set() for each in self._woken.values())

    def wake(self, key: Key) -> None:
        """Ask for a pass over a model."""
        if key not in self._woken:
            self._woken[key] = _Woken(asyncio.Event(), self._clock())
            task = asyncio.create_task(self._run(key, self._woken[key]), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        woken = self._woken[key]
        if not woken.event.is_set():
            woken.since_s = self._clock()
            woken.event.set()

    async def _run(self, key: Key, woken: _Woken) -> None:
        """Make passes over a model for as long as there is one."""
        await self._began.wait()
        failures, due_s = 0, self._clock()
        while True:
            await self._waited(key, woken, due_s)
            changed = await self._prepared(key)
            if not (changed or woken.event.is_set() or self._clock() >= due_s):
                continue
            async with self._slots:
                wait_s = self._clock() - woken.since_s if woken.event.is_set() else 0.0
                woken.event.clear()
                self._metrics.waits.observe(wait_s)
                failures, again_s = await self._pass(key, wait_s, failures)
            # A pass that writes nothing waits for nobody: without this, all that are due would be one turn of
            # the event loop, and the Lease be lost meanwhile.
            await asyncio.sleep(0)
            if again_s is None:
                if woken.event.is_set():
                    continue
                del self._woken[key]
                return
            due_s = self._clock() + again_s

    async def _waited(self, key: Key, woken: _Woken, due_s: float) -> None:
        left_s = min(due_s - self._clock(), self._reconciler.observer.due_s(key))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(left_s, 0.0)):
                await woken.event.wait()
        if woken.event.is_set():
            await asyncio.sleep(GATHER_S)

    async def _prepared(self, key: Key) -> bool:
        try:
            return await self._reconciler.observer.prepare(key)
        except Exception:
            logger.exception("this is a bug: the pages of %s's pods were not read", key)
            await asyncio.sleep(backoff_s(1))  # they are still due
            return True

    async def _pass(self, key: Key, wait_s: float, failures: int) -> tuple[int, float | None]:
        """Make one pass; return the failures in a row, and when to look again."""
        began_s = self._clock()
        with logs.about(key), tracing.reconcile(key, wait_s) as span:
            try:
                again_s = await self._reconciler.reconcile(key)
            except Exception as error:  # noqa: BLE001 - a fault with one model stops no other
                failures += 1
                reason, again_s = self._failed(error, failures)
                tracing.failed(span, reason, str(error))
                self._metrics.errors.labels(reason).inc()
            else:
                failures = 0
        self._metrics.passes.labels("failed" if failures else "done").observe(self._clock() - began_s)
        return failures, again_s

    def _failed(self, error: Exception, failures: int) -> tuple[str, float]:
        """Say what failed, and return its reason, and when to try again."""
        delay_s = backoff_s(failures)
        if isinstance(error, ApiError):
            delay_s = max(delay_s, error.retry_after_s or 0.0)
            logger.warning("%s; retrying in %.1f s", error, delay_s)
            return type(error).__name__, delay_s
        if isinstance(error, ChildFaultError):
            logger.warning("%s; retrying in %.1f s", error, delay_s)
            return error.reason, min(delay_s, error.again_s)
        logger.error("this is a bug; retrying in %.1f s", delay_s, exc_info=error)
        return "Bug", delay_s
