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
            _gauge("ready", "1 if this pod may get requests", verdict.ready),
            _gauge("ranks_connected", "Sampling ranks that are connected", len(snapshot.ranks)),
            _gauge("ranks_expected", "Sampling ranks of the engine", len(snapshot.expected_ranks)),
            _gauge("guided_probe", "1 for the guided probe's state, 0 for others", probe, "state"),
            _gauge(
                "grammar_service_exhausted",
                "1 while new grammars are refused, because too many grammar workers died in a row",
                snapshot.exhausted,
            ),
            _counter(
                "task_failures", "Failures of tasks that go on after them: bugs", tasks.failures, "task"
            ),
            _gauge(
                "grammar_workers_ready", "Grammar workers that can compile, or are compiling", workers.ready
            ),
            _gauge("grammar_workers_busy", "Grammar workers that are compiling", workers.busy),
            _gauge("grammar_compiles_queued", "Compiles that wait for a worker", workers.queued),
            _counter(
                "grammar_worker_restarts",
                "Grammar workers lost before their time, by reason",
                losses,
                "reason",
            ),
            _counter("grammar_worker_forks", "Grammar workers made", workers.forks),
            _gauge(
                "grammar_leases",
                "Guided requests and named grammars that hold a grammar on the ranks",
                cache.leases,
            ),
            _counter(
                "grammar_cache_lookups", "Requests for a grammar, by where it was found", answers, "result"
            ),
            _counter(
                "grammar_unenforced",
                "Requests served by leave of unsupportedKeywords Allow: a keyword of theirs is not enforced",
                cache.unenforced,
            ),
            _counter(
                "grammar_proofs",
                "Proofs of compiled grammars: a walk came to the end of a text, none did in time, or it was "
                "refused",
                proofs,
                "result",
            ),
            _gauge("grammar_cache_bytes", "Size of the grammars that are kept", cache.size_bytes),
            _gauge("grammar_cache_leased_bytes", "Of these, what is in use", cache.leased_bytes),
            _counter("grammar_cache_evictions", "Grammars given up for want of room", cache.evictions),
            _counter("digests_compared", "Digests that every rank sent, compared", agreement.compared),
            _counter("digests_lost", "Digests that not every rank sent in time", agreement.lost),
            _counter("rank_desyncs", "Digests in which a rank differed from the others", desyncs, "rank"),
        )


def _gauge(name: str, text: str, values: float | Mapping[str, float], label: str = "") -> Metric:
    return _filled(GaugeMetricFamily(f"guidedmodel_{name}", text, labels=[label] if label else ()), values)


def _counter(name: str, text: str, values: float | Mapping[str, float], label: str = "") -> Metric:
    return _filled(CounterMetricFamily(f"guidedmodel_{name}", text, labels=[label] if label else ()), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: float | Mapping[str, float]) -> Metric:
    for key, value in values.items() if isinstance(values, Mapping) else (("", values),):
        family.add_metric((key,) if key else (), float(value))
    return family
