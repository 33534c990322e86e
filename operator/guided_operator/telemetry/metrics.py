"""The operator's metrics.

Labels hold reasons, kinds and codes only, so that their number is bounded; replicas.py names each model.
"""

import itertools
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

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
from guided_operator.telemetry.replicas import ReplicaCounts

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PASS_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WAIT_BOUNDS_S: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0)
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


class ConditionCounts(Collector):
    """How many GuidedModels have which condition, as this replica last reported it."""

    def __init__(self) -> None:
        self._of: dict[Key, list[tuple[str, str, str]]] = {}

    def count(self, key: Key, conditions: Iterable[tuple[str, str, str]]) -> None:
        """Note a model's conditions: type, status and reason."""
        self._of[key] = list(conditions)

    def forget(self, key: Key) -> None:
        """Note that a model is gone."""
        self._of.pop(key, None)

    def collect(self) -> Iterator[Metric]:
        """Yield the number of models by type, status and reason."""
        tally = Tally(itertools.chain.from_iterable(self._of.values()))
        family = GaugeMetricFamily(
            "guidedmodel_operator_resources",
            "GuidedModels by condition, as this replica last reported them; a standby has none",
            labels=("condition", "status", "reason"),
        )
        for condition, models in tally.items():
            family.add_metric(condition, models)
        yield family


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
            "GuidedModels that are due and wait for a worker",
            value=self.queue_depth(),
        )
        yield GaugeMetricFamily(
            "guidedmodel_operator_leads", "1 if this replica is the one that acts", value=float(self.leads())
        )
        yield CounterMetricFamily(
            "guidedmodel_operator_unsettled_applies",
            "Applies after which the object still was not as wanted",
            value=self.unsettled(),
        )
        forbidden = GaugeMetricFamily(
            "guidedmodel_operator_kind_forbidden",
            "Namespaces in which a kind may not be seen; all of the cluster counts as one",
            labels=("kind",),
        )
        broken = CounterMetricFamily(
            "guidedmodel_operator_watch_failures", "Watches that broke off, by kind", labels=("kind",)
        )
        unreadable = GaugeMetricFamily(
            "guidedmodel_operator_unreadable_objects",
            "Objects that cannot be read and are left out, by kind; the log has each one's name",
            labels=("kind",),
        )
        failed = CounterMetricFamily(
            "guidedmodel_operator_task_failures",
            "Failures of tasks that go on after them: bugs",
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
            "Passes over a GuidedModel, by outcome",
            ("outcome",),
            buckets=_PASS_BOUNDS_S,
            registry=self.registry,
        )
        self.errors = Counter(
            "guidedmodel_operator_reconcile_errors",
            "Passes that failed, by reason",
            ("reason",),
            registry=self.registry,
        )
        self.waits = Histogram(
            "guidedmodel_operator_queue_wait_seconds",
            "From the moment at which a GuidedModel was due to its pass",
            buckets=_WAIT_BOUNDS_S,
            registry=self.registry,
        )
        self.requests = Counter(
            "guidedmodel_operator_api_requests",
            "Requests to the API server, by method and status; 0: no answer",
            ("method", "code"),
            registry=self.registry,
        )
        # They stand at 0 from the start, for increase() misses a first value.
        for outcome in OUTCOMES:
            self.passes.labels(outcome)
        for reason in REASONS:
            self.errors.labels(reason)
        self.condition_counts = ConditionCounts()
        self.registry.register(self.condition_counts)
        self.replica_counts = ReplicaCounts(clock)
        self.registry.register(self.replica_counts)
        ProcessCollector(registry=self.registry)

    def attach(self, sources: Sources) -> None:
        """Add what others keep."""
        self.registry.register(sources)

    def page(self) -> bytes:
        """Return the page that Prometheus scrapes."""
        return generate_latest(self.registry)
