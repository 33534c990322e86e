"""The last reading as Prometheus metrics: health, grammar service, agreement. Labels are bounded."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from guided_contract import tasks
from guided_sidecar.grammar.pool.workers import Loss
from guided_sidecar.grammar.prepare.known import ProofResult
from guided_sidecar.health.readiness import Reading, Verdict

_PROBE_STATES: Final = ("Pending", "Passed", "Failed", "Busy")
_ANSWERS: Final = ("hit", "joined", "miss", "refused", "none")


class HealthCollector(Collector):
    """Metrics of what `current` returns: the last reading and its verdict.

    A counter stands at 0 before there is anything to count: PromQL's increase does not see its first value.
    """

    def __init__(self, current: Callable[[], tuple[Reading, Verdict]]) -> None:
        self._current = current

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        reading, verdict = self._current()
        snapshot = reading.snapshot
        workers, cache, agreement = snapshot.workers, snapshot.cache, snapshot.agreement
        probe = {state: float(reading.probe.state == state) for state in _PROBE_STATES}
        losses = {loss: workers.restarts.get(loss, 0) for loss in get_args(Loss)}
        answers = {answer: cache.answers.get(answer, 0) for answer in _ANSWERS}
        proofs = {result: cache.proofs.get(result, 0) for result in get_args(ProofResult)}
        desyncs = {str(rank): agreement.desyncs.get(rank, 0) for rank in snapshot.expected_ranks}
        yield from (
            _gauge("ready", "1 if this pod is ready", verdict.ready),
            _gauge("ranks_connected", "Connected sampling ranks", len(snapshot.ranks)),
            _gauge("ranks_expected", "Sampling ranks of the engine", len(snapshot.expected_ranks)),
            _gauge(
                "guided_probe", "1 for the current state of the guided probe, 0 for others", probe, "state"
            ),
            _gauge(
                "grammar_service_exhausted",
                "1 while new grammars are refused because too many grammar workers died in a row",
                snapshot.exhausted,
            ),
            _counter(
                "task_failures",
                "Failures of tasks that were restarted; each is a bug",
                tasks.failures,
                "task",
            ),
            _gauge("grammar_workers_ready", "Running grammar workers", workers.ready),
            _gauge("grammar_workers_busy", "Grammar workers that are compiling", workers.busy),
            _gauge("grammar_compiles_queued", "Compiles that wait for a worker", workers.queued),
            _counter(
                "grammar_worker_restarts",
                "Grammar workers that crashed or were killed",
                losses,
                "reason",
            ),
            _counter("grammar_worker_forks", "Grammar workers started", workers.forks),
            _gauge(
                "grammar_leases",
                "Guided requests and named grammars that use a grammar on the ranks",
                cache.leases,
            ),
            _counter("grammar_cache_lookups", "Requests for a grammar, by cache result", answers, "result"),
            _counter(
                "grammar_unenforced",
                "Requests served with a keyword that is not enforced (unsupportedKeywords Allow)",
                cache.unenforced,
            ),
            _counter(
                "grammar_proofs",
                "Proofs of compiled grammars, by result",
                proofs,
                "result",
            ),
            _gauge("grammar_cache_bytes", "Size of the cached grammars", cache.size_bytes),
            _gauge("grammar_cache_leased_bytes", "Size of the cached grammars in use", cache.leased_bytes),
            _counter("grammar_cache_evictions", "Grammars evicted from the cache", cache.evictions),
            _counter("digests_compared", "Digests that were compared over all ranks", agreement.compared),
            _counter("digests_lost", "Digests that some rank did not send in time", agreement.lost),
            _counter("rank_desyncs", "Digests of a rank that differed from the others", desyncs, "rank"),
        )


def _gauge(name: str, text: str, values: float | Mapping[str, float], label: str = "") -> Metric:
    return _filled(GaugeMetricFamily(f"guidedmodel_{name}", text, labels=[label] if label else ()), values)


def _counter(name: str, text: str, values: float | Mapping[str, float], label: str = "") -> Metric:
    return _filled(CounterMetricFamily(f"guidedmodel_{name}", text, labels=[label] if label else ()), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: float | Mapping[str, float]) -> Metric:
    for key, value in values.items() if isinstance(values, Mapping) else (("", values),):
        family.add_metric((key,) if key else (), float(value))
    return family
