"""The way out for spans: the SDK's batches and exporters, which OpenTelemetry's variables tell the rest."""

import logging
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry, Counter

from guided_contract.config import TelemetryConfig
from guided_contract.otel_variables import traces_url

_log: Final = logging.getLogger(__name__)


def span_processor(telemetry: TelemetryConfig, registry: CollectorRegistry) -> SpanProcessor | None:
    """Return what sends spans to the collector and counts them; None where there is none to send to."""
    url = traces_url(telemetry)
    if url is None:
        return None
    make = GrpcExporter if telemetry.protocol == "GRPC" else HttpExporter
    try:
        return BatchSpanProcessor(CountedExporter(make(endpoint=url), registry))
    except Exception as error:  # noqa: BLE001 - traces are not worth a pod: grpc's have bases of their own
        _log.error("traces are off, for what a variable of OpenTelemetry says: %s", error)
        return None


class CountedExporter(SpanExporter):
    """Another exporter, of which is counted what the collector took."""

    def __init__(self, exporter: SpanExporter, registry: CollectorRegistry) -> None:
        self._exporter = exporter
        self._exported = Counter(
            "guidedmodel_spans_exported", "Spans that the collector took", registry=registry
        )
        self._dropped = Counter(
            "guidedmodel_spans_dropped", "Spans that the collector did not take in time", registry=registry
        )

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            count = self._exported if result is SpanExportResult.SUCCESS else self._dropped
            count.inc(len(spans))
        return result

    def shutdown(self) -> None:
        """Give up what is being sent."""
        self._exporter.shutdown()
