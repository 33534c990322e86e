"""The figures of /metrics at an OTLP collector, as the service composes it."""

import tempfile
from collections.abc import Iterator

import pytest
from aiohttp.test_utils import unused_port
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from guided_contract.config import PodConfig, PortsConfig, TelemetryConfig
from guided_sidecar.export_options import MetricOptions
from guided_sidecar.telemetry.pipeline import Instruments, Telemetry
from support.collectors import Collector, GrpcCollector, eventually
from support.monitored import decode, request

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]
OFTEN = {"OTEL_METRICS_EXPORTER": "otlp,prometheus", "OTEL_METRIC_EXPORT_INTERVAL": "20"}


@pytest.fixture
def pod() -> Iterator[PodConfig]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path is at most 107 bytes
        named = {"name": "tiny", "model": "m", "tokenizer": "m", "served_name": "m", "run_dir": folder}
        yield PodConfig(**named, ports=PortsConfig(otlp=unused_port()))


def options(to: Collector, **env: str) -> MetricOptions | None:
    protocol = "GRPC" if isinstance(to, GrpcCollector) else "HTTP"
    return MetricOptions.of(env, TelemetryConfig(endpoint=to.endpoint, protocol=protocol))


async def test_a_collector_gets_what_prometheus_reads(collector: Collector, pod: PodConfig) -> None:
    instruments = Instruments(pod, pod="tiny-0", metrics=options(collector, **OFTEN))
    for record in (request(), request(400, "grammar_invalid"), decode(), decode(rank=1)):
        instruments.metrics.take(record)
    telemetry = Telemetry(pod, instruments, lambda _digests: None)
    await telemetry.start()
    await eventually(lambda: len(collector.kept.metrics) > 1)
    await telemetry.stop()
    last = collector.kept.metrics[-1]
    assert figures(last) == of_the_page(instruments.metrics.render_openmetrics().decode())
    [group] = last.resource_metrics
    told = {item.key: item.value.string_value for item in group.resource.attributes}
    assert (told["service.name"], told["service.instance.id"]) == ("tiny", "tiny-0")
    by_name = {metric.name: metric for scope in group.scope_metrics for metric in scope.metrics}
    assert by_name["guidedmodel_request_duration_seconds"].unit == "s"
    asked = by_name["guidedmodel_requests"].sum
    assert asked.is_monotonic
    assert asked.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    point = asked.data_points[0]
    assert 0 < point.start_time_unix_nano < point.time_unix_nano


async def test_exemplars_go_with_the_buckets(collector: Collector, pod: PodConfig) -> None:
    traced = TelemetryConfig(endpoint="http://127.0.0.1:9")
    instruments = Instruments(
        PodConfig(name="t", model="m", tokenizer="m", served_name="m", run_dir=pod.run_dir, telemetry=traced),
        metrics=options(collector, **OFTEN),
    )
    instruments.metrics.take(request())
    assert instruments.figures is not None
    await instruments.figures.stop(10)
    by_name = {metric.name: metric for metric in metrics(collector.kept.metrics[0])}
    [point] = by_name["guidedmodel_request_duration_seconds"].histogram.data_points
    [exemplar] = point.exemplars
    assert (exemplar.trace_id.hex(), exemplar.span_id.hex()) == (request().trace_id, request().span_id)
    assert exemplar.as_double == 0.3
    assert instruments.exporter is not None
    await instruments.exporter.stop(0)


@pytest.mark.parametrize(
    ("env", "endpoint"),
    [
        ({}, None),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, None),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, "http://resource:4318"),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, None),
        (
            {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "x"},
            "http://resource:4318",
        ),
    ],
)
def test_metrics_are_sent_to_the_resources_collector_where_it_is_asked_for(
    env: dict[str, str], endpoint: str | None
) -> None:
    made = MetricOptions.of(env, TelemetryConfig(endpoint="http://resource:4318"))
    assert (made and made.to.endpoint) == endpoint


def test_where_the_resource_names_none_the_environments_is_taken() -> None:
    env = {
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://metrics",
        "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "a=b",
    }
    made = MetricOptions.of(env, TelemetryConfig().within(env))
    assert made is not None
    assert (made.to.endpoint, made.export.headers, made.interval_s) == ("http://metrics", {"a": "b"}, 60)
    assert MetricOptions.of({"OTEL_METRICS_EXPORTER": "otlp"}, TelemetryConfig()) is None


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
