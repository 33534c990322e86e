"""The operator's metrics. Labels hold reasons, kinds and codes only: their number is bounded."""

import os
import resource
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from guided_operator.kube.queue import Key
from guided_operator.telemetry.exposition import About, Counter, Histogram, Labels, Metric, Reading, page

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
Conditions = tuple[tuple[str, str, str], ...]


class ConditionCounts:
    """How many GuidedModels have which condition, as this replica last reported it."""

    def __init__(self) -> None:
        self._of: dict[Key, Conditions] = {}
        self._shared: dict[Conditions, Conditions] = {}

    def count(self, key: Key, conditions: Iterable[tuple[str, str, str]]) -> None:
        """Note a model's conditions: type, status and reason."""
        told = tuple(conditions)
        self._of[key] = self._shared.setdefault(told, told)  # thousands of models say the same

    def forget(self, key: Key) -> None:
        """Note that a model is gone."""
        self._of.pop(key, None)

    def read(self) -> Mapping[Labels, float]:
        """Return the number of models by type, status and reason."""
        tally: Tally[Labels] = Tally()
        for told, models in Tally(self._of.values()).items():
            for condition in told:
                tally[condition] += models
        return tally


@dataclass(frozen=True, slots=True)
class Sources:
    """What is read when the page is: of the queue, the Lease, the applier and the watches."""

    queue_depth: Callable[[], int]
    leads: Callable[[], bool]
    unsettled: Callable[[], int]
    forbidden: Callable[[], Mapping[str, int]]
    watch_failures: Callable[[], Mapping[str, int]]


class OperatorMetrics:
    """All of the operator's metrics. Attributes are what the code counts with."""

    def __init__(self) -> None:
        self.passes = Histogram(
            About(
                "guidedmodel_operator_reconcile_seconds",
                "Passes over a GuidedModel, by outcome",
                ("outcome",),
            ),
            _PASS_BOUNDS_S,
            [(outcome,) for outcome in OUTCOMES],
        )
        self.errors = Counter(
            About(
                "guidedmodel_operator_reconcile_errors_total", "Passes that failed, by reason", ("reason",)
            ),
            [(reason,) for reason in REASONS],
        )
        self.waits = Histogram(
            About(
                "guidedmodel_operator_queue_wait_seconds",
                "From the moment at which a GuidedModel was due to its pass",
            ),
            _WAIT_BOUNDS_S,
        )
        self.requests = Counter(
            About(
                "guidedmodel_operator_api_requests_total",
                "Requests to the API server, by method and status; 0: no answer",
                ("method", "code"),
            ),
        )
        self.condition_counts = ConditionCounts()
        self._read: tuple[Metric, ...] = ()

    def attach(self, sources: Sources) -> None:
        """Add what others keep."""
        self._read = (
            Reading(
                About("guidedmodel_operator_queue_depth", "GuidedModels that are due and wait for a worker"),
                lambda: {(): sources.queue_depth()},
            ),
            Reading(
                About("guidedmodel_operator_leads", "1 if this replica is the one that acts"),
                lambda: {(): float(sources.leads())},
            ),
            Reading(
                About(
                    "guidedmodel_operator_unsettled_applies_total",
                    "Applies after which the object still was not as wanted",
                ),
                lambda: {(): sources.unsettled()},
                "counter",
            ),
            Reading(
                About(
                    "guidedmodel_operator_kind_forbidden",
                    "Namespaces in which a kind may not be seen; all of the cluster counts as one",
                    ("kind",),
                ),
                lambda: {(kind,): count for kind, count in sources.forbidden().items()},
            ),
            Reading(
                About(
                    "guidedmodel_operator_watch_failures_total", "Watches that broke off, by kind", ("kind",)
                ),
                lambda: {(kind,): count for kind, count in sources.watch_failures().items()},
                "counter",
            ),
        )

    def page(self) -> str:
        """Return the page that Prometheus scrapes."""
        return page(self.all())

    def all(self) -> tuple[Metric, ...]:
        """Return every metric family."""
        return (
            self.passes,
            self.errors,
            self.waits,
            self.requests,
            *self._read,
            Reading(
                About(
                    "guidedmodel_operator_resources",
                    "GuidedModels by condition, as this replica last reported them; a standby has none",
                    ("condition", "status", "reason"),
                ),
                self.condition_counts.read,
            ),
            *_process(),
        )


def _process() -> tuple[Metric, ...]:
    """Return what Prometheus' client libraries tell of any process, under their names."""
    return (
        Reading(
            About("process_cpu_seconds_total", "User and system CPU time"),
            lambda: {(): time.process_time()},
            "counter",
        ),
        Reading(About("process_resident_memory_bytes", "Resident memory"), lambda: {(): _resident_bytes()}),
        Reading(About("process_start_time_seconds", "Start, since the epoch"), lambda: {(): _STARTED}),
    )


def _resident_bytes() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - read at each scrape
            return int(statm.read().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
    except OSError:  # no Linux: the peak, which is all that there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


_STARTED: Final = time.time()
