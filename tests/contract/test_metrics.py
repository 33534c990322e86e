"""/metrics as Prometheus reads it: its parser, and its engine for each query of the dashboard."""

import asyncio
import itertools
import json
import math
import re
import socket
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from devtools import dashboard, golang, operator_names
from devtools import sidecar_names as names
from prometheus_client import REGISTRY, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from guided_contract import names as contract
from guided_contract import records
from guided_contract.config import LogitsProcessorConfig, PodConfig, TelemetryConfig
from guided_contract.records import (
    DraftTokens,
    MatchersRestart,
    ProcessorFailure,
    ProcessorTime,
    ProcessorTimes,
)
from guided_contract.wire import Prepared, Refused
from support.cluster import unavailable
from support.engine import pod_config
from support.monitored import Pod, decode, observability, request
from support.promql import TARGET, Scrape, as_sent, evaluate
from support.scraping import discovered, endpoints, relabel_configs
from support.sidecar import Api, Rank, Sidecar, until

ROOT = Path(__file__).parents[2]
WARM_S = 120
STEP_S = 60.0  # from one scrape to the next, and the dashboard's interval
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# What a scrape adds to the operator's page: it has a `model` of its own for some metrics.
OPERATOR = {"namespace": "guidedmodel-system", "pod": "operator-0", "job": "guidedmodel-operator"}
# Of a logits processor `ban`, and of numTokens Auto.
RECORDS = (
    DraftTokens(engine=0, chosen=3, changes=1),
    ProcessorTimes(rank=0, times=[ProcessorTime("ban", 100, 2, 30_000_000)]),
    ProcessorFailure(rank=0, processors=["ban"], code="sequence_processor_failed"),
    MatchersRestart(rank=0),
)
OF_VLLM = tuple(f"vllm:spec_decode_num_{one}_tokens_total" for one in ("draft", "accepted"))
LATENCIES = {query for panel in dashboard.ROWS["vLLM"] for query, _ in panel.queries}
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
    """Pages of a real sidecar: one, and another after as much work as before."""
    return asyncio.run(_pages())


async def _pages() -> list[str]:
    nowhere = TelemetryConfig(endpoint="http://127.0.0.1:9")
    ban = LogitsProcessorConfig(name="ban", factory="a.b:C")
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:  # short: a socket's path is at most 107 bytes
        pod = pod_config(Path(folder), telemetry=nowhere, logits_processors=[ban])
        with Sidecar.running(pod):
            async with Rank.connected(pod), Api.connected(pod) as api, asyncio.timeout(WARM_S):
                while not isinstance(await api.prepare("choice", '["warm"]'), Prepared):
                    pass
                return [await _page_after_work(pod, api) for _ in range(2)]


async def _page_after_work(pod: PodConfig, api: Api) -> str:
    before = _read(pod)
    number = next(_numbers)
    schema = json.dumps({"type": "string", "maxLength": 100 + number})
    for kind, spec in (("regex", f"new{number}"), ("choice", '["warm"]'), ("json", schema)):
        assert isinstance(await api.prepare(kind, spec), Prepared)  # type: ignore[arg-type]
    assert isinstance(await api.prepare("json", json.dumps({"type": f"none{number}"})), Refused)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        for record in (request(), request(400, "grammar_invalid"), decode(traceparent=PARENT), *RECORDS):
            client.sendto(records.encode(record), str(pod.telemetry_socket))
    requests = _value(before, "guidedmodel_requests_total") + 2
    await until(lambda: _value(_read(pod), "guidedmodel_requests_total") >= requests, 30)
    await asyncio.sleep(1.1)  # a reading of the service is made once a second
    return _read(pod)


def _read(pod: PodConfig) -> str:
    answer = httpx.get(f"http://127.0.0.1:{pod.ports.sidecar}/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return answer.text


def _families(page: str) -> list[Metric]:
    return list(text_string_to_metric_families(page))


def _value(page: str, name: str) -> float:
    return sum(s.value for family in _families(page) for s in family.samples if s.name == name)


def test_a_real_page_is_what_the_document_says(pages: list[str]) -> None:
    assert names.tables() in (ROOT / "docs/telemetry.md").read_text()
    documented = {entry.name: entry for entry in names.metrics()}
    told = {
        family.name + ("_total" if family.type == "counter" else ""): family for family in _families(pages[1])
    }
    assert set(told) == set(documented)
    for name, family in told.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert (family.type, family.documentation) == (documented[name].kind, documented[name].covers)
        assert labels == set(documented[name].labels), name


def test_every_query_of_the_dashboard_finds_what_it_asks_for(pages: list[str]) -> None:
    """All but most of vLLM's: tests/e2e/test_run_metrics.py has a real engine's page."""
    told = [page + more for page, more in zip(pages, _of_vllm(), strict=True)]
    scrapes = [Scrape(number * STEP_S, page) for number, page in enumerate(told)]
    scrapes += [Scrape(number * STEP_S, page, labels=OPERATOR) for number, page in enumerate(_operator())]
    panels = json.loads(dashboard.PATH.read_text())["panels"]
    assert dashboard.queries() == [one["expr"] for panel in panels for one in panel.get("targets", ())]
    queries = [as_sent(query, STEP_S) for query in dashboard.queries() if query not in LATENCIES]
    assert len(queries) > 40

    for answer in evaluate(scrapes, queries, STEP_S):
        assert answer.series, answer.query
        assert all(value >= 0 or math.isnan(value) for _, value in answer.series), answer
        _check_names(answer.reads)


def _of_vllm() -> Iterator[str]:
    """Yield vLLM's page of what speculative decoding did, and again after as much as before."""
    from vllm.v1.spec_decode.metrics import SpecDecodingProm, SpecDecodingStats

    asked: Any = SimpleNamespace(num_speculative_tokens=3)
    counters = SpecDecodingProm(asked, ["model_name", "engine"], {0: ["tiny", "0"]})
    stats = SpecDecodingStats.new(3)
    stats.observe_draft(num_draft_tokens=3, num_accepted_tokens=2)
    for _ in range(2):
        counters.observe(stats)
        yield generate_latest(REGISTRY.restricted_registry(OF_VLLM)).decode()


def _operator() -> list[str]:
    """Return an operator's page, and its page again after one more of everything that it counts."""
    made, pages = operator_names.metrics(), []
    for _ in range(2):
        made.passes.labels("done").observe(0.01)
        made.waits.observe(0.01)
        made.errors.labels("WriteConflict").inc()
        made.requests.labels("GET", "200").inc()
        pages.append(made.page().decode())
    return pages


@pytest.mark.parametrize(
    ("port", "pods"), [("http", {"m-0", "single"}), ("sidecar", {"m-0", "m-0-1", "single"})]
)
def test_of_a_group_the_first_node_alone_is_asked_for_vllms_metrics(port: str, pods: set[str]) -> None:
    """The others serve no API: their target would be down for ever."""
    monitor = observability("podmonitor")
    [endpoint] = (each for each in endpoints(monitor) if each["port"] == port)
    about = {"app.kubernetes.io/name": "guidedmodel", contract.LABEL_NAME: "m"}
    ports = [{"name": port, "containerPort": 1}]
    scrapes = []
    for name, node in (("m-0", "0"), ("m-0-1", "1"), ("single", None)):
        labels = about if node is None else {**about, contract.LABEL_NODE: node}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "ports": ports}]}}
        [labels] = discovered(pod, "ns", name)
        scrapes.append(Scrape(0, "up_to 1\n", labels=labels, relabel=relabel_configs(monitor, endpoint)))
    [answer] = evaluate(scrapes, ["up_to"], 1)
    assert {(labels["pod"], labels["model"]) for labels, _ in answer.series} == {(pod, "m") for pod in pods}


def _check_names(reads: Iterable[tuple[str, list[str]]]) -> None:
    """A query that reads what nobody exposes is empty for ever, and says nothing."""
    documented = {}
    for entry in (*names.metrics(), *operator_names.families()):
        suffixes = ("_bucket", "_sum", "_count") if entry.kind == "histogram" else ("",)
        documented |= {entry.name + suffix: {*entry.labels, "le"} for suffix in suffixes}
    documented |= {key: {"model_name", "engine"} for key in OF_VLLM}
    for metric, labels in reads:
        assert metric in documented
        assert set(labels) <= documented[metric] | set(TARGET), metric


@pytest.mark.parametrize(("tensor", "data"), [(2, 1), (2, 2)])
def test_the_share_of_whole_answers_is_of_all_engines_and_of_each_sequence_once(
    tensor: int, data: int
) -> None:
    """All answers of the first engine are whole, and of the second none."""
    ranks = range(tensor * data)
    ends = [*("completed", "completed", "aborted")] + [*("length", "length", "aborted")] * (data - 1)
    sequences = [(ends[number], number // 3) for number in range(3 * data)]
    told = [
        decode(rank=r, end_reason=end) for r in ranks for end, engine in sequences if r // tensor == engine
    ]
    pod = Pod(records=told * 20, tensor_parallel=tensor)
    [documented] = re.findall(r"```\n(sum by .*?)```", (ROOT / "docs/telemetry.md").read_text(), re.DOTALL)
    panels = {panel.title: panel.queries[0][0] for panel in dashboard.ROWS["Requests"]}
    assert next(iter(panels)) == "Complete guided answers"
    titles = ("Complete guided answers", "Guided sequences by end reason")
    shown = [as_sent(panels[title], 300.0) for title in titles]
    scrapes = [Scrape(200.0 * times, pod.page()) for times in range(4)]
    *shares, by_end = evaluate(scrapes, [documented, *shown], 600.0)

    assert [share for answer in shares for _, share in answer.series] == [pytest.approx(1 / data)] * 2
    rates = {labels["end_reason"]: rate for labels, rate in by_end.series}
    assert sum(rates.values()) == pytest.approx(len(sequences) * 20 / 200)
