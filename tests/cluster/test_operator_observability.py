"""What the real operator tells of itself: metrics, a trace of each pass, events, and a log by object."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from devtools import operator_names as names
from devtools.process import free_ports
from prometheus_client.parser import text_string_to_metric_families

from guided_operator.telemetry import tracing
from support.cluster import Cluster
from support.collectors import HttpCollector, Received
from support.operator_process import Operator, install, running
from support.resources import await_condition, conditions, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
Object = dict[str, Any]


@pytest.fixture(scope="module")
def collector() -> Iterator[HttpCollector]:
    """A real OTLP collector in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    [port] = free_ports(1)
    made = HttpCollector(port)
    asyncio.run_coroutine_threadsafe(made.start(), loop).result(10)
    yield made
    asyncio.run_coroutine_threadsafe(made.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture(scope="module")
def operator(
    api_server: Cluster, collector: HttpCollector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """An operator that is asked to tell all of itself."""
    install(api_server)
    settings = {
        "GUIDEDMODEL_OTLP_ENDPOINT": collector.endpoint,
        "GUIDEDMODEL_LOG_FORMAT": "json",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    with running(api_server, tmp_path_factory.mktemp("operator"), "told", **settings) as replica:
        eventually(replica.leads, what="the only replica leads")
        yield replica


@pytest.fixture
def served(api_server: Cluster, namespace: str, operator: Operator) -> str:
    """A namespace with a model `m` that was worked on."""
    del operator
    api_server.apply(model(namespace))
    eventually(lambda: conditions(api_server, namespace).get("Ready"), what="a status")
    return namespace


@pytest.fixture
def conflicting(api_server: Cluster, namespace: str, operator: Operator) -> str:
    """A namespace where somebody else's Service has the name of the model's."""
    del operator
    spec = {"ports": [{"port": 80}], "selector": {"app": "other"}}
    metadata = {"name": "m", "namespace": namespace}
    api_server.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "False", "NameConflict")
    return namespace


def passes(collector: HttpCollector, namespace: str) -> list[Received]:
    return [
        span
        for span in collector.kept.named(tracing.RECONCILE)
        if span.attributes[tracing.MODEL_NAMESPACE] == namespace
    ]


def awaited(find: Callable[[], list[Received]]) -> Received:
    return eventually(find, what="the collector has the span")[0]


def test_observability_a_trace_for_each_pass(collector: HttpCollector, served: str) -> None:
    def children(of: Received) -> dict[str, Received]:
        return {s.name: s for s in collector.kept.spans if s.parent_span_id == of.span_id}

    def of_all_steps() -> list[Received]:
        return [each for each in passes(collector, served) if len(children(each)) == len(tracing.STEPS)]

    root = awaited(of_all_steps)
    assert root.attributes[tracing.MODEL_NAME] == "m"
    assert root.attributes[tracing.QUEUE_WAIT] >= 0
    assert root.parent_span_id == ""
    assert root.resource["service.name"] == tracing.SERVICE
    assert root.resource["k8s.pod.name"] == "told"
    steps = children(root)
    assert set(steps) == set(tracing.STEPS)
    assert {span.trace_id for span in steps.values()} == {root.trace_id}


def test_observability_failure_in_trace_metrics_log_and_one_event(
    api_server: Cluster, operator: Operator, collector: HttpCollector, conflicting: str
) -> None:
    def failed() -> list[Received]:
        return [span for span in passes(collector, conflicting) if span.status == 2]

    root = awaited(failed)
    assert root.attributes[tracing.ERROR_TYPE] == "NameConflict"
    eventually(lambda: len(failed()) > 2, what="it was tried again")
    assert operator.figure("guidedmodel_operator_reconcile_errors_total", reason="NameConflict") > 2
    lines = [json.loads(line) for line in operator.log().splitlines()]
    about = [line for line in lines if line.get("namespace") == conflicting]
    assert {line["name"] for line in about} == {"m"}
    assert any(line["trace_id"] == root.trace_id and "Service m" in line["message"] for line in about)
    events = [
        event
        for event in api_server.get("events", "-n", conflicting)["items"]
        if event["involvedObject"]["kind"] == "GuidedModel"
    ]
    assert [(event["type"], event["reason"]) for event in events] == [("Warning", "NameConflict")]


@pytest.mark.usefixtures("served")
def test_observability_metrics_are_those_documented(operator: Operator) -> None:
    families = {family.name: family for family in text_string_to_metric_families(operator.metrics())}
    documented = {entry.name: entry for entry in names.families()}
    told = {f"{name}_total" if one.type == "counter" else name: one for name, one in families.items()}
    assert set(told) == set(documented)
    for name, family in told.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        about = documented[name]
        assert (family.type, family.documentation) == (about.kind, about.counts)
        assert labels == set(about.labels), name
    figures = {
        "guidedmodel_operator_leads": 1,
        "guidedmodel_operator_unsettled_applies_total": 0,
    }
    for name, value in figures.items():
        assert operator.figure(name) == value
    assert operator.figure("guidedmodel_operator_reconcile_seconds_count", outcome="done") >= 1
    assert operator.figure("guidedmodel_operator_resources", condition="Compatible", status="True") >= 1
    assert operator.figure("guidedmodel_operator_api_requests_total", method="PATCH", code="201") >= 6
    assert operator.figure("process_resident_memory_bytes") > 2**25
