"""/metrics as Prometheus reads it: its parser, and its engine for each query of dashboard and alerts."""

import asyncio
import dataclasses
import functools
import itertools
import json
import math
import re
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from devtools import dashboard, golang
from devtools import sidecar_names as names
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from guided_contract import records
from guided_contract.config import PodConfig, TelemetryConfig
from guided_contract.records import Decode, HttpRequest
from guided_contract.status import ProbeStatus
from guided_contract.wire import Hello, Prepared, Refused
from guided_sidecar.grammar.pool.workers import WorkersState
from guided_sidecar.health.heartbeats import EngineState
from guided_sidecar.health.metrics import HealthCollector
from guided_sidecar.health.readiness import Reading, Verdict
from guided_sidecar.ranks.agreement import AgreementState
from guided_sidecar.socket.snapshot import ServiceSnapshot
from guided_sidecar.telemetry.exporter import ExportCounts
from guided_sidecar.telemetry.metrics import ExportCollector, SidecarMetrics
from support.cluster import unavailable
from support.engine import pod_config
from support.promql import TARGET, Scrape, evaluate
from support.sidecar import Api, Rank, Sidecar

ROOT = Path(__file__).parents[2]
WARM_S = 120
STEP_S = 60.0  # from one scrape to the next, and the dashboard's interval
_numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def _promql() -> None:
    try:
        golang.promql()
    except golang.MissingToolError as error:
        unavailable(error)


# --- a real sidecar ---


@pytest.fixture(scope="module")
def pages() -> list[str]:
    """A real sidecar's page, and its page again after as much as before."""
    return asyncio.run(_pages())


async def _pages() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:  # short: a socket's path is at most 107 bytes
        nowhere = TelemetryConfig(endpoint="http://127.0.0.1:9")
        pod = pod_config(Path(folder), grammar_cache_dir=f"{folder}/disk", telemetry=nowhere)
        sidecar = await asyncio.to_thread(Sidecar.start, pod)
        try:
            async with Rank.connected(pod), Api.connected(pod) as api, asyncio.timeout(WARM_S):
                while not isinstance(await api.prepare("choice", '["warm"]'), Prepared):
                    pass
                return [await _page_after_work(pod, api) for _ in range(2)]
        finally:
            await asyncio.to_thread(sidecar.stop)


async def _page_after_work(pod: PodConfig, api: Api) -> str:
    before = await _read(pod)
    number = next(_numbers)
    assert isinstance(await api.prepare("regex", f"new{number}"), Prepared)
    assert isinstance(await api.prepare("choice", '["warm"]'), Prepared)
    schema = json.dumps({"type": "string", "maxLength": 100 + number})
    assert isinstance(await api.prepare("json", schema), Prepared)
    assert isinstance(await api.prepare("json", json.dumps({"type": f"none{number}"})), Refused)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        for record in (_request(), _request(400, "grammar_invalid"), *_decodes()):
            client.sendto(records.encode(record), str(pod.telemetry_socket))
    requests = _value(before, "guidedmodel_requests_total") + 2
    async with asyncio.timeout(30):
        while _value(await _read(pod), "guidedmodel_requests_total") < requests:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.1)  # a reading of the service is made once a second
    return await _read(pod)


async def _read(pod: PodConfig) -> str:
    url = f"http://127.0.0.1:{pod.ports.sidecar}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return await answer.text()


def _request(status: int = 200, code: str | None = None) -> HttpRequest:
    return HttpRequest(
        trace_id="a" * 32,
        span_id="b" * 16,
        start_ns=0,
        end_ns=300_000_000,
        method="POST",
        route="/v1/completions",
        status=status,
        kind="json",
        error_code=code,
    )


def _decodes(**changes: Any) -> list[Decode]:
    made = Decode(
        request_id="r",
        traceparent=None,
        rank=0,
        grammar_key="k",
        backend="xgrammar",
        start_ns=0,
        end_ns=1,
        steps=100,
        fills=100,
        fill_ns=1_000_000,
        fill_max_ns=50_000,
        exposed_ns=400_000,
        tokens=150,
        drafts_proposed=80,
        drafts_accepted=60,
        drafts_refused=8,
        end_reason="completed",
    )
    return [msgspec.structs.replace(made, **changes)]


def _families(page: str) -> list[Metric]:
    return list(text_string_to_metric_families(page))


def _value(page: str, name: str) -> float:
    return sum(s.value for family in _families(page) for s in family.samples if s.name == name)


def test_a_real_page_is_what_the_document_says(pages: list[str]) -> None:
    documented = {entry.name: entry for entry in names.metrics()}
    told = {
        family.name + ("_total" if family.type == "counter" else ""): family for family in _families(pages[1])
    }
    assert set(told) == set(documented)
    for name, family in told.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert (family.type, family.documentation) == (documented[name].kind, documented[name].covers)
        assert labels == set(documented[name].labels), name


def test_counters_only_rise(pages: list[str]) -> None:
    first, second = ({_key(s): s.value for f in _families(page) for s in f.samples} for page in pages)
    kinds = {s.name: f.type for f in _families(pages[0]) for s in f.samples}
    fallen = [key for key, value in first.items() if kinds[key[0]] != "gauge" and second[key] < value]
    assert not fallen


def _key(sample: Any) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())


def _as_sent(query: str) -> str:
    """Return a dashboard's query as Grafana sends it with everything chosen."""
    chosen = {"$__rate_interval": f"{2 * STEP_S:.0f}s", "$namespace": ".*", "$model": ".*"}
    return functools.reduce(lambda text, name: text.replace(name, chosen[name]), chosen, query)


def test_every_query_of_the_dashboard_finds_what_it_asks_for(pages: list[str]) -> None:
    scrapes = [Scrape(number * STEP_S, page) for number, page in enumerate(pages)]
    queries = [_as_sent(query) for query in dashboard.queries()]
    assert len(queries) > 40
    assert queries == [_as_sent(query) for query in _queries(json.loads(dashboard.PATH.read_text()))]

    for answer in evaluate(scrapes, queries, STEP_S):
        assert answer.series, answer.query
        assert all(value >= 0 or math.isnan(value) for _, value in answer.series), answer
        _check_names(answer.reads)


def _queries(found: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in found["panels"] for target in panel.get("targets", ())]


def _check_names(reads: Iterable[tuple[str, list[str]]]) -> None:
    """A query that reads what nobody exposes is empty for ever, and says nothing."""
    documented = {}
    for entry in names.metrics():
        suffixes = ("_bucket", "_sum", "_count") if entry.kind == "histogram" else ("",)
        documented |= {entry.name + suffix: {*entry.labels, "le"} for suffix in suffixes}
    for metric, labels in reads:
        assert metric in documented
        assert set(labels) <= documented[metric] | set(TARGET), metric


# --- alerts, each in a state that is to raise it ---


def _render(**state: Any) -> str:
    """Return the page of a healthy pod, or of one in another state."""
    fields = {field.name for field in dataclasses.fields(ServiceSnapshot)}
    changes = {name: state[name] for name in fields & set(state)}
    metrics = SidecarMetrics()
    for record in state.get("records", SERVED) * state.get("times", 1):
        metrics.take(record)
    reading = Reading(
        config=pod_config(Path("/nowhere"), model="/m", tensor_parallel=2),
        snapshot=dataclasses.replace(HEALTHY, **changes),
        engine=EngineState(running=True),
        probe=ProbeStatus(state=state.get("probe", "Passed")),
    )
    metrics.registry.register(HealthCollector(lambda: (reading, Verdict(state.get("ready", True)))))
    counts = ExportCounts()
    counts.dropped["sidecar", "queue_full"] = state.get("lost", 0)
    metrics.registry.register(ExportCollector(counts))
    return metrics.render().decode()


HELLOS = (
    Hello(role="launcher", pid=1, boot="b"),
    *(Hello(role="rank", pid=2 + rank, boot="b", rank=rank, samples=True) for rank in range(2)),
)
SERVED = [_request(), *_decodes()] * 100
KILLED = {"deadline": 9}  # workers, on somebody's endless schemas: no fault of the pod's
HEALTHY = ServiceSnapshot(
    hellos=HELLOS, expected_ranks=range(2), workers=WorkersState(idle=2, forks=2, restarts=KILLED)
)
# For each alert what differs from a healthy pod.
SICK: dict[str, dict[str, Any]] = {
    "GuidedModelHasNoReadyPod": {"ready": False},
    "GuidedModelRanksMissing": {"hellos": HELLOS[:2]},
    "GuidedModelProbeFailed": {"probe": "Failed"},
    "GuidedModelRanksDisagree": {"agreement": AgreementState(desyncs={1: 1})},
    "GuidedModelFellBack": {"agreement": AgreementState(fell_back=True)},
    "GuidedModelGrammarServiceExhausted": {"exhausted": True},
    "GuidedModelGrammarWorkersCrash": {"workers": WorkersState(idle=1, forks=9, restarts={"crashed": 9})},
    "GuidedModelGrammarQueueGrows": {"workers": WorkersState(busy=1, forks=1, queued=3)},
    "GuidedModelRequestsUnavailable": {
        "records": [*SERVED, *[_request(503, "grammar_service_exhausted")] * 10]
    },
    "GuidedModelSequencesFail": {"records": [*SERVED, *_decodes(end_reason="sequence_dead_end") * 5]},
    "GuidedModelMasksLate": {"records": [_request(), *_decodes(exposed_ns=2_000_000_000)] * 100},
    "GuidedModelTelemetryLost": {"lost": 7},
}
RULES: dict[str, str] = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((ROOT / "manifests/observability/alerts.yaml").read_text())["spec"]["groups"]
    for rule in group["rules"]
}


def _firing(**state: Any) -> set[str]:
    """Return the alerts whose condition holds after ten minutes in which a pod came to a state and stayed."""
    scrapes = [Scrape(0.0, _render(times=0))]
    scrapes += [Scrape(200.0 * times, _render(times=times, **state)) for times in (1, 2, 3)]
    answers = evaluate(scrapes, list(RULES.values()), 600.0)
    for answer in answers:
        _check_names(answer.reads)
    return {alert for alert, answer in zip(RULES, answers, strict=True) if answer.series}


def test_a_healthy_pod_raises_no_alert() -> None:
    assert _firing() == set()


def test_the_documents_query_tells_the_share_of_whole_answers() -> None:
    """And an answer that is cut, or that nobody waits for, is no failure."""
    ends = ["completed", "completed", "completed", "length", "aborted"]
    records = [_request(), *[decode for end in ends for decode in _decodes(end_reason=end)]] * 20
    query = re.findall(r"```\n(sum by .*?)```", (ROOT / "docs/telemetry.md").read_text(), re.DOTALL)

    scrapes = [Scrape(200.0 * times, _render(times=times, records=records)) for times in range(4)]
    (answer,) = evaluate(scrapes, query, 600.0)

    assert [share for _, share in answer.series] == [pytest.approx(0.75)]
    assert not _firing(records=records)


@pytest.mark.parametrize("alert", SICK)
def test_each_alert_is_raised_by_its_state_and_no_other(alert: str) -> None:
    assert _firing(**SICK[alert]) == {alert}


def test_every_alert_has_its_state_here_and_says_what_it_means() -> None:
    assert set(SICK) == set(RULES)
    for group in yaml.safe_load((ROOT / "manifests/observability/alerts.yaml").read_text())["spec"]["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}
            assert rule["annotations"]["summary"]
