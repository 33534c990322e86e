"""What ranks tell of logits processors, as Prometheus' counters, by the resource's own names."""

from collections.abc import Collection
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from guided_contract.records import ProcessorFailure, ProcessorTimes

_NS_PER_S: Final = 1e9
_OTHER: Final = "other"


class ProcessorCounters:
    """Counts what processors took, and what ended for them.

    Parameters
    ----------
    names
        Of the model's processors.
    """

    def __init__(self, registry: CollectorRegistry, names: Collection[str]) -> None:
        self._names = frozenset(names)
        labels = ("rank", "processor")
        self._steps = Counter(
            "guidedmodel_processor_steps",
            "Steps in which a logits processor had sequences",
            labels,
            registry=registry,
        )
        self._over = Counter(
            "guidedmodel_processor_steps_over_budget",
            "Steps in which a logits processor took more CPU time than its timeBudget",
            labels,
            registry=registry,
        )
        self._seconds = Counter(
            "guidedmodel_processor_seconds",
            "CPU time that a logits processor took, of all of its sequences together",
            labels,
            registry=registry,
        )
        self._failures = Counter(
            "guidedmodel_processor_failures",
            "Sequences that ended for a logits processor, or one of several; tp_rank 0 counts each once",
            ("rank", "tp_rank", "processor", "error_code"),
            registry=registry,
        )

    def take_times(self, record: ProcessorTimes) -> None:
        """Count what a rank's processors took."""
        for each in record.times:
            labels = str(record.rank), self._name(each.name)
            self._steps.labels(*labels).inc(each.steps)
            self._over.labels(*labels).inc(each.over_budget)
            self._seconds.labels(*labels).inc(each.total_ns / _NS_PER_S)

    def take_failure(self, record: ProcessorFailure, tp_rank: int, error_code: str) -> None:
        """Count a sequence's end."""
        for name in {self._name(name) for name in record.processors}:
            self._failures.labels(str(record.rank), str(tp_rank), name, error_code).inc()

    def _name(self, name: str) -> str:
        return name if name in self._names else _OTHER
