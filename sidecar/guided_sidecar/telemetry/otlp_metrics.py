"""The figures of /metrics as OTLP, sent every so often to those who have no Prometheus.

One registry feeds both, so that they cannot differ. Figures are cumulative: one that could not be sent is in
the next. The SDK's own exporter sends what its own instruments count, and reads certificates once.
"""

import logging
import time
from asyncio import sleep, timeout
from collections.abc import Iterable, Iterator
from typing import Final

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from guided_contract.tasks import Living
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry.otlp_transport import Transport

MOST_WISHED_S: Final = 60.0  # that a collector may ask to be left alone for
_UNITS: Final = {"seconds": "s", "bytes": "By"}
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE

_log: Final = logging.getLogger(__name__)


class MetricExports:
    """Sends a registry's figures.

    Parameters
    ----------
    transport
        Closed by `stop`.
    """

    def __init__(
        self, registry: CollectorRegistry, resource: Resource, transport: Transport, interval_s: float
    ) -> None:
        self._registry = registry
        self._resource = resource
        self._transport = transport
        self._interval_s = interval_s
        self._begun_ns = time.time_ns()
        self._sender = Living("otlp-metrics", self._send_forever)
        self._taken = True

    def start(self) -> None:
        """Begin to send."""
        self._sender.start()

    async def stop(self, deadline_s: float) -> None:
        """Send the last figures, for at most `deadline_s`, and close the transport."""
        await self._sender.stop()
        try:
            async with timeout(deadline_s):
                await self._send()
        except TimeoutError:
            _log.warning("the last figures were not sent before shutdown")
        await self._transport.close()

    async def _send_forever(self) -> None:
        wait_s = self._interval_s
        while True:
            await sleep(wait_s)
            wait_s = max(self._interval_s, await self._send())

    async def _send(self) -> float:
        """Send the figures as they are; return how long the collector asks to be left alone."""
        reply = await self._transport.send(
            encoded(self._registry.collect(), self._resource, self._begun_ns, time.time_ns())
        )
        if (taken := reply.verdict == "Delivered") != self._taken:
            self._taken = taken
            _log.warning("the collector %s metrics: %s", "takes" if taken else "does not take", reply.reason)
        return min(reply.retry_after_s, MOST_WISHED_S)


def encoded(families: Iterable[Family], resource: Resource, begun_ns: int, now_ns: int) -> bytes:
    """Return an ExportMetricsServiceRequest of what Prometheus would read at this moment."""
    metrics = [_metric(family, begun_ns, now_ns) for family in families]
    scope = ScopeMetrics(InstrumentationScope(c.SCOPE), metrics, c.SCHEMA_URL)
    data = MetricsData([ResourceMetrics(resource, [scope], resource.schema_url)])
    return encode_metrics(data).SerializeToString()


def _metric(family: Family, begun_ns: int, now_ns: int) -> Metric:
    """Return one metric, without the suffix `_total`, which who translates back adds."""
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        data = Histogram(list(_histograms(family.samples, begun_ns, now_ns)), _CUMULATIVE)
    else:
        points = [
            NumberDataPoint(dict(sample.labels), begun_ns, now_ns, sample.value) for sample in family.samples
        ]
        is_counter = family.type == "counter"
        data = Sum(points, _CUMULATIVE, is_monotonic=True) if is_counter else Gauge(points)
    unit = _UNITS.get(family.name.rpartition("_")[2], "")
    return Metric(family.name, family.documentation, unit, data)


def _histograms(samples: Iterable[Sample], begun_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Yield a point for each set of labels: its samples follow one another, the buckets' first."""
    buckets: list[Sample] = []
    counted = 0.0
    for sample in samples:
        if sample.name.endswith("_bucket"):
            buckets.append(sample)
        elif sample.name.endswith("_count"):
            counted = sample.value
        elif sample.name.endswith("_sum"):
            yield _histogram(buckets, counted, sample, begun_ns, now_ns)
            buckets = []


def _histogram(
    buckets: list[Sample], counted: float, total: Sample, begun_ns: int, now_ns: int
) -> HistogramDataPoint:
    below = [int(bucket.value) for bucket in buckets]  # each counts those before it, too
    return HistogramDataPoint(
        attributes=dict(total.labels),
        start_time_unix_nano=begun_ns,
        time_unix_nano=now_ns,
        count=int(counted),
        sum=total.value,
        bucket_counts=[upper - lower for lower, upper in zip([0, *below], below, strict=False)],
        explicit_bounds=[float(bucket.labels["le"]) for bucket in buckets[:-1]],
        min=None,  # type: ignore[arg-type]  # optional in OTLP, and nobody keeps them
        max=None,  # type: ignore[arg-type]  # neither
        exemplars=[exemplar for bucket in buckets for exemplar in _exemplar(bucket)],
    )


def _exemplar(bucket: Sample) -> Iterator[Exemplar]:
    named = bucket.exemplar
    if named is not None and named.timestamp is not None:
        at_ns = int(float(named.timestamp) * 1e9)
        ids = (int(named.labels[name], 16) for name in ("span_id", "trace_id"))
        yield Exemplar({}, named.value, at_ns, *ids)
