"""The last reading as Prometheus metrics: health, grammar service, agreement. Labels are bounded."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from guided_contract import tasks
from guided_sidecar.grammar import trust
from guided_sidecar.grammar.pool.workers import Loss, WorkersState
from guided_sidecar.grammar.prepare.cache_state import CacheState, ProofResult
from guided_sidecar.health.readiness import Reading, Verdict
from guided_sidecar.ranks.agreement import AgreementState

_PROBE_STATES: Final = ("Pending", "Passed", "Failed", "Busy")
# How a prepare found its grammar; "none": it ended before it was looked for.
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
        yield _gauge("ready", "1 if this pod may get requests", verdict.ready)
        yield _gauge("ranks_connected", "Sampling ranks that are connected", len(reading.ranks))
        yield _gauge("ranks_expected", "Sampling ranks of the engine", len(snapshot.expected_ranks))
        probe = {state: float(reading.probe.state == state) for state in _PROBE_STATES}
        yield _gauges("guided_probe", "1 for the guided probe's state, 0 for others", "state", probe)
        yield _gauge(
            "grammar_service_exhausted",
            "1 while the grammar workers' restart budget is spent",
            snapshot.exhausted,
        )
        yield _counters(
            "task_failures", "Failures of tasks that go on after them: bugs", "task", tasks.failures
        )
        yield from _workers(snapshot.workers)
        yield from _cache(snapshot.cache)
        yield from _agreement(snapshot.agreement, snapshot.expected_ranks)


def _workers(state: WorkersState) -> Iterable[Metric]:
    yield _gauge("grammar_workers_ready", "Grammar workers that can compile, or are compiling", state.ready)
    yield _gauge("grammar_workers_busy", "Grammar workers that are compiling", state.busy)
    yield _gauge("grammar_compiles_queued", "Compiles that wait for a worker", state.queued)
    losses: tuple[Loss, ...] = get_args(Loss)
    yield _counters(
        "grammar_worker_restarts",
        "Grammar workers lost before their time, by reason",
        "reason",
        {loss: state.restarts.get(loss, 0) for loss in losses},
    )
    yield _counter("grammar_worker_forks", "Grammar workers made", state.forks)
    yield _counter("grammar_worker_fork_seconds", "Time from asking for a worker to having it", state.fork_s)
    other = trust.unmeasured(state.versions)
    yield _gauges(
        "grammar_library_unmeasured",
        "1 if a library's version is not the one whose enforcement is known: Auto gives it no JSON schemas",
        "library",
        {one.distribution: float(name in other) for name, one in trust.MEASURED.items()},
    )
    yield _counter("grammar_template_starts", "Templates of workers that became ready", state.templates)


def _cache(state: CacheState) -> Iterable[Metric]:
    yield _gauge("grammar_leases", "Guided requests that hold a grammar on the ranks", state.leases)
    answers = {answer: state.answers.get("" if answer == "none" else answer, 0) for answer in _ANSWERS}
    yield _counters(
        "grammar_cache_lookups", "Requests for a grammar, by where it was found", "result", answers
    )
    yield _counter(
        "grammar_unenforced",
        "Requests served by leave of unsupportedKeywords Allow: a keyword of theirs is not enforced",
        state.unenforced,
    )
    results: tuple[ProofResult, ...] = get_args(ProofResult)
    yield _counters(
        "grammar_proofs",
        "Proofs of compiled grammars: a walk came to the end of a text, none did in time, or it was refused",
        "result",
        {result: state.proofs.get(result, 0) for result in results},
    )
    yield _gauge("grammar_cache_entries", "Grammars that are kept", state.entries)
    yield _gauge("grammar_cache_bytes", "Size of the grammars that are kept", state.size_bytes)
    yield _gauge("grammar_cache_leased_bytes", "Of these, what is in use", state.leased_bytes)
    yield _counter("grammar_cache_evictions", "Grammars given up for want of room", state.evictions)


def _agreement(state: AgreementState, ranks: Iterable[int]) -> Iterable[Metric]:
    yield _counter("digests_compared", "Digests that every rank sent, compared", state.compared)
    yield _counter("digests_lost", "Digests that not every rank sent in time", state.lost)
    desyncs = {str(rank): state.desyncs.get(rank, 0) for rank in ranks}
    yield _counters("rank_desyncs", "Digests in which a rank differed from the others", "rank", desyncs)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"guidedmodel_{name}", text, value=float(value))


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"guidedmodel_{name}", text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"guidedmodel_{name}", text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"guidedmodel_{name}", text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
