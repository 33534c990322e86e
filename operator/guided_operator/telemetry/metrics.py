"""The operator's metrics.

Labels hold reasons, kinds and codes only, so that their number is bounded, but for a model's replicas.
"""

import itertools
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import aiohttp
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from guided_contract import tasks
from guided_operator.kube.key import Key

_PASS_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WAIT_BOUNDS_S: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0)
# Not `namespace`: a scrape gives that label the operator's own.
_MODEL: Final = ("model_namespace", "model")
# How a pass ended, and why one failed: apiserver.py's errors, apply.py's reasons, and our own bugs.
OUTCOMES: Final = ("done", "failed")
REASONS: Final = (
    "AccessForbidden",
    "AlreadyExists",
    "ApplyRefused",
    "Bug",
    "Forbidden",
    "NameConflict",
    "NotLeadingError",
    "ObjectInvalid",
    "ObjectNotFound",
    "ServerUnavailable",
    "WriteConflict",
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """A model's replicas in one pass.

    `updated`: pods of the current revision that are ready. `starting`: not ready for the first time, with
    nothing wrong. `start_s`: how long that may take.
    """

    revision: str
    desired: int
    ready: int
    updated: int
    starting: int
    start_s: float


class _Seen(NamedTuple):
    """What a pass has seen of a model: type, status and reason of its conditions; since when it starts."""

    conditions: tuple[tuple[str, str, str], ...]
    replicas: Replicas
    since_s: float


class ModelCounts(Collector):
    """Each model's conditions and replicas, as this replica of the operator last saw them.

    Replicas are what alerts about a model whose pods expose nothing go by. Starts have their time from the
    moment at which something was asked for, or at which one more was ready: pods that are replaced again and
    again do not begin anew. That moment is not known after a restart of the operator, and starts then have
    their whole time again.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[Key, _Seen] = {}

    def count(self, key: Key, conditions: Iterable[tuple[str, str, str]], now: Replicas) -> None:
        """Note a model's conditions (type, status and reason), and its replicas."""
        since_s = self._clock()
        if seen := self._of.get(key):
            before = seen.replicas
            goes_on = (
                (before.revision, before.desired) == (now.revision, now.desired)
                and before.ready < before.desired
                and now.ready <= before.ready
                and now.updated <= before.updated
            )
            since_s = seen.since_s if goes_on else since_s
        self._of[key] = _Seen(tuple(conditions), now, since_s)

    def forget(self, key: Key) -> None:
        """Note that a model is gone."""
        self._of.pop(key, None)

    def collect(self) -> Iterator[Metric]:
        """Yield the number of models by type, status and reason, and each model's replicas."""
        resources = GaugeMetricFamily(
            "guidedmodel_operator_resources",
            "GuidedModels by condition; only the leader reports them",
            labels=("condition", "status", "reason"),
        )
        desired = GaugeMetricFamily(
            "guidedmodel_operator_desired_replicas",
            "Desired replicas of a GuidedModel; only the leader reports them",
            labels=_MODEL,
        )
        ready = GaugeMetricFamily(
            "guidedmodel_operator_ready_replicas", "Ready replicas of a GuidedModel", labels=_MODEL
        )
        starting = GaugeMetricFamily(
            "guidedmodel_operator_starting_replicas",
            "Replicas of a GuidedModel that are starting, within rollout.progressDeadline",
            labels=_MODEL,
        )
        tally = Tally(itertools.chain.from_iterable(seen.conditions for seen in self._of.values()))
        for condition, models in tally.items():
            resources.add_metric(condition, models)
        now_s = self._clock()
        for key, (_, replicas, since_s) in self._of.items():
            desired.add_metric(key, replicas.desired)
            ready.add_metric(key, replicas.ready)
            starting.add_metric(key, replicas.starting if now_s < since_s + replicas.start_s else 0)
        yield from (resources, desired, ready, starting)


@dataclass(frozen=True, slots=True)
class Sources(Collector):
    """What is read when the page is: of the queue, the Lease, the applier and the watches."""

    queue_depth: Callable[[], int]
    leads: Callable[[], bool]
    unsettled: Callable[[], int]
    forbidden: Callable[[], Mapping[str, int]]
    watch_failures: Callable[[], Mapping[str, int]]
    unreadable: Callable[[], Mapping[str, int]]

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each."""
        yield GaugeMetricFamily(
            "guidedmodel_operator_queue_depth",
            "GuidedModels in the queue for reconciliation",
            value=self.queue_depth(),
        )
        yield GaugeMetricFamily(
            "guidedmodel_operator_leads", "1 if this replica is the leader", value=float(self.leads())
        )
        yield CounterMetricFamily(
            "guidedmodel_operator_unsettled_applies",
            "Applies after which the object still differed",
            value=self.unsettled(),
        )
        forbidden = GaugeMetricFamily(
            "guidedmodel_operator_kind_forbidden",
            "Namespaces in which the operator lacks permission to list a kind; the cluster counts as one",
            labels=("kind",),
        )
        broken = CounterMetricFamily(
            "guidedmodel_operator_watch_failures", "Watches that failed", labels=("kind",)
        )
        unreadable = GaugeMetricFamily(
            "guidedmodel_operator_unreadable_objects",
            "Objects that cannot be parsed and are ignored; the log has their names",
            labels=("kind",),
        )
        failed = CounterMetricFamily(
            "guidedmodel_operator_task_failures",
            "Failures of tasks that were restarted; each is a bug",
            labels=("task",),
        )
        for family, counts in (
            (forbidden, self.forbidden()),
            (broken, self.watch_failures()),
            (unreadable, self.unreadable()),
            (failed, tasks.failures),
        ):
            for kind, count in counts.items():
                family.add_metric((kind,), count)
            yield family


class OperatorMetrics:
    """All of the operator's metrics. Attributes are what the code counts with.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # twice as many series, which nobody asks for
        self.registry = CollectorRegistry(auto_describe=False)
        self.passes = Histogram(
            "guidedmodel_operator_reconcile_seconds",
            "Duration of reconciliations of a GuidedModel",
            ("outcome",),
            buckets=_PASS_BOUNDS_S,
            registry=self.registry,
        )
        self.errors = Counter(
            "guidedmodel_operator_reconcile_errors",
            "Failed reconciliations",
            ("reason",),
            registry=self.registry,
        )
        self.waits = Histogram(
            "guidedmodel_operator_queue_wait_seconds",
            "Time that a GuidedModel waited in the queue",
            buckets=_WAIT_BOUNDS_S,
            registry=self.registry,
        )
        self.requests = Counter(
            "guidedmodel_operator_api_requests",
            "Requests to the API server; code 0: no answer",
            ("method", "code"),
            registry=self.registry,
        )
        # They stand at 0 from the start, for increase() misses a first value.
        for outcome in OUTCOMES:
            self.passes.labels(outcome)
        for reason in REASONS:
            self.errors.labels(reason)
        self.models = ModelCounts(clock)
        self.registry.register(self.models)
        ProcessCollector(registry=self.registry)

    def attach(self, sources: Sources) -> None:
        """Add what others keep."""
        self.registry.register(sources)

    def page(self) -> bytes:
        """Return the page that Prometheus scrapes."""
        return generate_latest(self.registry)

    def of_requests(self) -> aiohttp.TraceConfig:
        """Return what has a session's requests counted."""

        async def ended(_session: object, _context: object, end: aiohttp.TraceRequestEndParams) -> None:
            self.requests.labels(end.method, str(end.response.status)).inc()

        async def broke(_session: object, _context: object, end: aiohttp.TraceRequestExceptionParams) -> None:
            self.requests.labels(end.method, "0").inc()

        told = aiohttp.TraceConfig()
        told.on_request_end.append(ended)
        told.on_request_exception.append(broke)
        return told
