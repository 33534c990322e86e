"""What the real operator tells of itself: metrics, a trace of each pass, events, and a log by object."""

import json
from collections.abc import Iterator

import pytest

from guided_operator.telemetry import tracing
from support.cluster import Cluster
from support.collectors import HttpCollector, Received, collecting
from support.operator_process import Operator, install, running
from support.resources import await_condition, conditions, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def collector() -> Iterator[HttpCollector]:
    with collecting() as made:
        yield made


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


def passes(collector: HttpCollector, namespace: str) -> list[Received]:
    return [
        span
        for span in collector.kept.named(tracing.RECONCILE)
        if span.attributes[tracing.MODEL_NAMESPACE] == namespace
    ]


def test_a_trace_for_each_pass(
    api_server: Cluster, namespace: str, operator: Operator, collector: HttpCollector
) -> None:
    def children(of: Received) -> dict[str, Received]:
        return {s.name: s for s in collector.kept.spans if s.parent_span_id == of.span_id}

    def of_all_steps() -> list[Received]:
        return [each for each in passes(collector, namespace) if set(children(each)) == set(tracing.STEPS)]

    del operator
    api_server.apply(model(namespace))
    root, *_ = eventually(of_all_steps, what="the collector has a pass with all steps")
    assert root.attributes[tracing.MODEL_NAME] == "m"
    assert root.attributes[tracing.QUEUE_WAIT] >= 0
    assert root.parent_span_id == ""
    assert (root.resource["service.name"], root.resource["k8s.pod.name"]) == (tracing.SERVICE, "told")
    assert {span.trace_id for span in children(root).values()} == {root.trace_id}


def test_a_failure_is_in_trace_metrics_log_and_one_event(
    api_server: Cluster, namespace: str, operator: Operator, collector: HttpCollector
) -> None:
    """Somebody else's Service has the name of the model's."""

    def failed() -> list[Received]:
        return [span for span in passes(collector, namespace) if span.status == 2]

    spec = {"ports": [{"port": 80}], "selector": {"app": "other"}}
    metadata = {"name": "m", "namespace": namespace}
    api_server.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "False", "NameConflict")
    eventually(lambda: len(failed()) > 2, what="it was tried again")
    root = failed()[0]
    assert root.attributes[tracing.ERROR_TYPE] == "NameConflict"
    assert operator.figure("guidedmodel_operator_reconcile_errors_total", reason="NameConflict") > 2
    lines = [json.loads(line) for line in operator.log().splitlines()]
    [line, *_] = [line for line in lines if line.get("namespace") == namespace]
    assert (line["name"], line["trace_id"]) == ("m", root.trace_id)
    events = api_server.get("events", "-n", namespace, "--field-selector=involvedObject.kind=GuidedModel")
    assert [(each["type"], each["reason"]) for each in events["items"]] == [("Warning", "NameConflict")]


def test_metrics_are_told(api_server: Cluster, namespace: str, operator: Operator) -> None:
    api_server.apply(model(namespace))
    eventually(lambda: conditions(api_server, namespace).get("Ready"), what="a status")
    for name, value, labels in (
        ("guidedmodel_operator_leads", 1, {}),
        ("guidedmodel_operator_reconcile_seconds_count", 1, {"outcome": "done"}),
        ("guidedmodel_operator_resources", 1, {"condition": "Compatible", "status": "True"}),
        ("guidedmodel_operator_api_requests_total", 6, {"method": "PATCH", "code": "201"}),
        ("process_resident_memory_bytes", 2**25, {}),
    ):
        assert operator.figure(name, **labels) >= value, name
