"""The figures of /metrics at an OTLP collector, as the service composes it."""

import os
import tempfile
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from prometheus_client.parser import text_string_to_metric_families

from guided_contract import otel_variables
from guided_contract.config import PodConfig, TelemetryConfig
from guided_sidecar.telemetry.pipeline import Telemetry
from support.collectors import Collector, GrpcCollector, eventually
from support.monitored import decode, request

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]
OFTEN = {"OTEL_METRICS_EXPORTER": "otlp,prometheus", "OTEL_METRIC_EXPORT_INTERVAL": "100"}


@pytest.fixture
def pod(collector: Collector) -> Iterator[PodConfig]:
    before = dict(os.environ)
    protocol = "GRPC" if isinstance(collector, GrpcCollector) else "HTTP"
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path is at most 107 bytes
        named = {"name": "tiny", "model": "m", "tokenizer": "m", "served_name": "m", "run_dir": folder}
        pod = PodConfig(**named, telemetry=TelemetryConfig(endpoint=collector.endpoint, protocol=protocol))
        os.environ |= otel_variables.environment(pod, os.environ | OFTEN)
        yield pod
    os.environ.clear()
    os.environ.update(before)


async def test_a_collector_gets_what_prometheus_reads(collector: Collector, pod: PodConfig) -> None:
    telemetry = Telemetry(pod, lambda _digests: None)
    for record in (request(), request(400, "grammar_invalid"), decode(), decode(rank=1)):
        telemetry.metrics.take(record)
    await telemetry.start()
    await eventually(lambda: len(collector.kept.metrics) > 1)
    expected = of_the_page(telemetry.metrics.render().decode())
    await telemetry.stop()
    last = collector.kept.metrics[-1]
    assert figures(last) == expected
    [group] = last.resource_metrics
    assert "tiny" in {
        item.value.string_value for item in group.resource.attributes if item.key == "service.name"
    }
    by_name = {metric.name: metric for scope in group.scope_metrics for metric in scope.metrics}
    assert by_name["guidedmodel_request_duration_seconds"].unit == "s"
    asked = by_name["guidedmodel_requests"].sum
    assert asked.is_monotonic
    assert asked.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    point = asked.data_points[0]
    assert 0 < point.start_time_unix_nano < point.time_unix_nano


@pytest.mark.parametrize(
    ("env", "is_sent"),
    [
        ({}, False),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, False),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, False),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x:1"}, True),
    ],
)
def test_metrics_are_sent_where_somebody_asks_and_names_a_collector(
    env: dict[str, str],
    is_sent: bool,  # noqa: FBT001 - a table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    pod = PodConfig(name="t", model="m", tokenizer="m", served_name="m", run_dir="/none")
    assert (Telemetry(pod, lambda _digests: None).figures is not None) == is_sent


def metrics(sent: ExportMetricsServiceRequest) -> list[Metric]:
    return [
        metric for group in sent.resource_metrics for scope in group.scope_metrics for metric in scope.metrics
    ]


def figures(sent: ExportMetricsServiceRequest) -> Figures:
    """Return what was sent as Prometheus has it: counters are named _total, buckets count those before."""
    found: Figures = {}
    for metric in metrics(sent):
        for point in (*metric.sum.data_points, *metric.gauge.data_points):
            suffix = "_total" if metric.HasField("sum") else ""
            found[metric.name + suffix, labels(point)] = point.as_double
        for point in metric.histogram.data_points:
            found[f"{metric.name}_count", labels(point)] = point.count
            found[f"{metric.name}_sum", labels(point)] = point.sum
            bounds = [*point.explicit_bounds, float("inf")]
            for number, bound in enumerate(bounds):
                key = labels(point) | {("le", str(bound))}
                found[f"{metric.name}_bucket", key] = sum(point.bucket_counts[: number + 1])
    return found


def labels(point: object) -> frozenset[tuple[str, str]]:
    return frozenset((item.key, item.value.string_value) for item in point.attributes)  # type: ignore[attr-defined]


def of_the_page(page: str) -> Figures:
    found: Figures = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            told = {
                **sample.labels,
                **({"le": str(float(sample.labels["le"]))} if "le" in sample.labels else {}),
            }
            found[sample.name, frozenset(told.items())] = sample.value
    return found
