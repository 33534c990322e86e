"""The loop: for each key in the queue, observe -> plan -> apply -> report."""

import asyncio
import dataclasses
import datetime as dt
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from guided_operator.builders import Site
from guided_operator.kube.api_errors import ApiError, ServerUnavailable
from guided_operator.kube.apiserver import Api
from guided_operator.kube.queue import Backoff, Key, WorkQueue
from guided_operator.policy.installation_limits import Limits
from guided_operator.reconcile.apply import Applier, Fault, Outcome
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.reconcile.conditions.progress_deadline import Progress
from guided_operator.reconcile.observe import Observer, PagesAreReadError
from guided_operator.reconcile.plan import plan
from guided_operator.reconcile.replicas import replicas
from guided_operator.reconcile.report import report
from guided_operator.reconcile.rollout import rollover
from guided_operator.telemetry import logs, tracing
from guided_operator.telemetry.metrics import ConditionCounts, OperatorMetrics
from guided_operator.telemetry.replicas import ReplicaCounts
from guided_operator.watch.guided_models import Models

logger = logging.getLogger(__name__)

# Everything is looked at again so often, even without an event: a safety net for events missed by our fault.
# A pass that finds nothing takes CPU, too, so the net is wide; controller-runtime's is ten hours.
RESYNC_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Reconciler:
    """One pass over one GuidedModel.

    `now` is wall-clock time, for the status; nothing is decided by it.
    """

    api: Api
    models: Models
    observer: Observer
    applier: Applier
    site: Site
    limits: Limits
    now: Callable[[], dt.datetime]
    condition_counts: ConditionCounts
    replica_counts: ReplicaCounts
    progress: Progress

    async def reconcile(self, key: Key) -> float | None:
        """Make the cluster and the status like the spec; return the seconds until the next look.

        None: there is nothing to look after, or what has to be known first rings when it is. Level-triggered:
        which event queued the key does not matter.

        Raises
        ------
        ApiError
            The API server failed or refused: look again after a backoff.
        """
        with tracing.step("observe"):
            try:
                observed = await self.observer.observe(key)
            except PagesAreReadError:
                return None
        if observed is None or "deletionTimestamp" in observed.model["metadata"]:
            self.condition_counts.forget(key)
            self.replica_counts.forget(key)
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
            written = await report(self.api, situation, self.now())
        if written is not None:
            self.models.take_written(written)
        findings = decide(situation)
        self.condition_counts.count(
            observed.key, ((name, one.status, one.reason) for name, one in findings.items())
        )
        self.replica_counts.count(observed.key, replicas(situation))
        again_s = _again_s(outcome, left_s)
        if outcome.faults:
            raise ChildFaultError(outcome.faults, again_s)
        return again_s


def _again_s(outcome: Outcome, left_s: float | None) -> float:
    """Return the seconds until the next look where no event asks for one sooner."""
    if outcome.turning:
        return rollover.LOOK_S
    if left_s:
        return min(left_s, RESYNC_S)
    return RESYNC_S * random.uniform(0.9, 1.0)  # noqa: S311 - spreads load


class ChildFaultError(Exception):
    """Children could not be made as planned; the status says so, and they are tried again after a backoff.

    `reason` is the first one's. `again_s`: when the rest is to be looked at again, at the latest.
    """

    def __init__(self, faults: Sequence[Fault], again_s: float) -> None:
        self.reason = faults[0].reason
        self.again_s = again_s
        super().__init__("; ".join(fault.message for fault in faults))


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pass failed; `is_the_servers`: the API server is in trouble, and not this one resource."""

    reason: str
    message: str
    is_the_servers: bool = False


class ServerBackoff:
    """How long a worker waits when the API server is in trouble: the longer the more passes failed by it.

    Each key has its own backoff; without this, thousands of keys in turn would still ask at full speed.
    """

    def __init__(self) -> None:
        self._backoff = Backoff(first_s=0.1, last_s=10.0)
        self._failures = 0

    def reset(self) -> None:
        """Note that the API server works."""
        self._failures = 0

    def next_delay_s(self) -> float:
        """Note that it does not, and return the seconds to wait."""
        self._failures += 1
        return self._backoff.delay_s(self._failures)


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that take keys from the queue, by what they share.

    `sleep` waits by the same clock as the queue's.
    """

    queue: WorkQueue
    reconciler: Reconciler
    metrics: OperatorMetrics
    server_backoff: ServerBackoff = field(default_factory=ServerBackoff)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def work(self) -> None:
        """Handle keys for ever."""
        while True:
            key = await self.queue.take()
            wait_s, began_s = self.queue.waited_s(key), self.clock()
            self.metrics.waits.observe(wait_s)
            with logs.about(key), tracing.reconcile(key, wait_s) as span:
                failure = await self._handle(key)
                if failure is not None:
                    tracing.failed(span, failure.reason, failure.message)
            outcome = "failed" if failure else "done"
            self.metrics.passes.labels(outcome).observe(self.clock() - began_s)
            if failure is not None:
                self.metrics.errors.labels(failure.reason).inc()
            if failure is not None and failure.is_the_servers:
                await self.sleep(self.server_backoff.next_delay_s())
            else:
                self.server_backoff.reset()
                # A pass that writes nothing waits for nobody: without this, all keys that are due would be
                # handled before anything else runs, and the Lease be lost meanwhile.
                await asyncio.sleep(0)

    async def _handle(self, key: Key) -> Failure | None:
        """Make one pass, and give the key back."""
        try:
            again_s = await self.reconciler.reconcile(key)
        except ApiError as error:
            failure = Failure(type(error).__name__, str(error), isinstance(error, ServerUnavailable))
            delay_s = self.queue.failed(key, at_least_s=error.retry_after_s or 0.0)
            logger.warning("%s; again in %.1f s", error, delay_s)
        except ChildFaultError as error:
            failure = Failure(error.reason, str(error))
            logger.warning("%s; again in %.1f s", error, self.queue.failed(key))
            self.queue.add(key, delay_s=error.again_s)
        except Exception as error:  # a fault of ours in one resource must not stop the others
            failure = Failure("Bug", repr(error))
            logger.exception("this is a bug; again in %.1f s", self.queue.failed(key))
        else:
            self.queue.done(key)
            if again_s is not None:
                self.queue.add(key, delay_s=again_s)  # no sooner: what is due then would not be
            return None
        return failure


async def work_together(workers: Workers, count: int) -> None:
    """Run `count` workers until one fails, which is a bug."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(workers.work())
