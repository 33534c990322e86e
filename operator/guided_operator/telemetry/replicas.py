"""How many replicas each GuidedModel has: what alerts about a model whose pods expose nothing go by."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from guided_operator.kube.key import Key

# Not `namespace`: a scrape gives that label the operator's own.
_LABELS: Final = ("model_namespace", "model")


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


class ReplicaCounts(Collector):
    """The replicas of each model, as this replica of the operator last saw them.

    Starts have their time from the moment at which something was asked for, or at which one more was ready:
    pods that are replaced again and again do not begin anew. That moment is not known after a restart of
    the operator, and starts then have their whole time again.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[Key, tuple[Replicas, float]] = {}

    def count(self, key: Key, now: Replicas) -> None:
        """Note a model's replicas."""
        before, since_s = self._of.get(key, (None, 0.0))
        goes_on = (
            before is not None
            and (before.revision, before.desired) == (now.revision, now.desired)
            and before.ready < before.desired
            and now.ready <= before.ready
            and now.updated <= before.updated
        )
        self._of[key] = now, since_s if goes_on else self._clock()

    def forget(self, key: Key) -> None:
        """Note that a model is gone."""
        self._of.pop(key, None)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        desired = GaugeMetricFamily(
            "guidedmodel_operator_desired_replicas",
            "Replicas that a GuidedModel should have; a standby tells of none",
            labels=_LABELS,
        )
        ready = GaugeMetricFamily(
            "guidedmodel_operator_ready_replicas", "Replicas of a GuidedModel that are ready", labels=_LABELS
        )
        starting = GaugeMetricFamily(
            "guidedmodel_operator_starting_replicas",
            "Replicas of a GuidedModel that start for the first time, within rollout.progressDeadline",
            labels=_LABELS,
        )
        now_s = self._clock()
        for key, (seen, since_s) in self._of.items():
            desired.add_metric(key, seen.desired)
            ready.add_metric(key, seen.ready)
            starting.add_metric(key, seen.starting if now_s < since_s + seen.start_s else 0)
        yield from (desired, ready, starting)
