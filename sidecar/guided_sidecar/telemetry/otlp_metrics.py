"""The figures of /metrics as OTLP, sent every so often to those who have no Prometheus.

One registry feeds both, so that they cannot differ. Figures are cumulative: one that could not be sent is in
the next.
"""

import itertools
import logging
import time
from typing import Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from guided_contract.otel_environment import Environment, exporter_word, exporters
from guided_sidecar.telemetry import conventions as c

_UNITS: Final = {"seconds": "s", "bytes": "By"}
_CUMULATIVE: Final = export.AggregationTemporality.CUMULATIVE

_log: Final = logging.getLogger(__name__)


def figures(
    registry: CollectorRegistry, resource: Resource, env: Environment
) -> export.PeriodicExportingMetricReader | None:
    """Return what sends a registry's figures, already at work; None where nobody asks for it."""
    if "otlp" not in exporters(env, "METRICS"):
        return None
    if not exporter_word(env, "ENDPOINT", "METRICS"):
        _log.warning("OTEL_METRICS_EXPORTER asks for OTLP, and nothing names a collector")
        return None
    make = GrpcExporter if exporter_word(env, "PROTOCOL", "METRICS").lower() == "grpc" else HttpExporter
    try:
        reader = export.PeriodicExportingMetricReader(make())
    except Exception as error:  # noqa: BLE001 - as for traces
        _log.error("no metrics are sent, for what a variable of OpenTelemetry says: %s", error)
        return None
    begun_ns = time.time_ns()

    def collected(*_: object, **__: object) -> export.MetricsData:
        metrics = [_metric(family, begun_ns, time.time_ns()) for family in registry.collect()]
        scope = export.ScopeMetrics(InstrumentationScope(c.SCOPE), metrics, c.SCHEMA_URL)
        return export.MetricsData([export.ResourceMetrics(resource, [scope], resource.schema_url)])

    reader._set_collect_callback(collected)  # noqa: SLF001 - as a MeterProvider does, of its own instruments alone
    return reader


def _metric(family: Family, begun_ns: int, now_ns: int) -> export.Metric:
    """Return one metric, without the suffix `_total`, which who translates back adds."""
    data: export.Sum | export.Gauge | export.Histogram
    if family.type == "histogram":
        by_labels = itertools.groupby(family.samples, lambda sample: sample.labels | {"le": ""})
        data = export.Histogram(
            [_histogram(list(each), begun_ns, now_ns) for _, each in by_labels], _CUMULATIVE
        )
    else:
        points = [
            export.NumberDataPoint(dict(sample.labels), begun_ns, now_ns, sample.value)
            for sample in family.samples
        ]
        is_counter = family.type == "counter"
        data = export.Sum(points, _CUMULATIVE, is_monotonic=True) if is_counter else export.Gauge(points)
    unit = _UNITS.get(family.name.rpartition("_")[2], "")
    return export.Metric(family.name, family.documentation, unit, data)


def _histogram(samples: list[Sample], begun_ns: int, now_ns: int) -> export.HistogramDataPoint:
    """Return the point of one set of labels, of its buckets in order, then its count and its sum."""
    *buckets, count, total = samples
    below = [int(bucket.value) for bucket in buckets]  # each counts those before it, too
    return export.HistogramDataPoint(
        attributes=dict(total.labels),
        start_time_unix_nano=begun_ns,
        time_unix_nano=now_ns,
        count=int(count.value),
        sum=total.value,
        bucket_counts=[upper - lower for lower, upper in itertools.pairwise([0, *below])],
        explicit_bounds=[float(bucket.labels["le"]) for bucket in buckets[:-1]],
        min=None,  # type: ignore[arg-type]  # optional in OTLP, and nobody keeps them
        max=None,  # type: ignore[arg-type]  # neither
    )
