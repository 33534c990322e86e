"""The real Spans: finished spans as the OpenTelemetry SDK's objects, encoded in batches for the exporter.

The SDK's TracerProvider is not used: its spans choose their own ids, and the HTTP root's were chosen by the
API server. Its batch processor is not either: one queue with one count of losses serves vLLM's spans as well.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanContext as OtelContext
from opentelemetry.trace import SpanKind as OtelKind

from guided_sidecar.telemetry import conventions, spans
from guided_sidecar.telemetry.exporter import Batch, Exporter
from guided_sidecar.telemetry.spans import NO_ATTRIBUTES, Attributes, FinishedSpan, RunningSpan

BATCH_SPANS: Final = 32  # 0.1 ms each to encode, for which the event loop stands still
FLUSH_S: Final = 0.5

_KINDS: Final = {"internal": OtelKind.INTERNAL, "server": OtelKind.SERVER}


class OtlpSpans:
    """Batches sampled spans for the exporter. For the event loop's thread only.

    Parameters
    ----------
    resource
        Attributes of the process, see `resource.attributes`.
    sampling
        Share of traces to export, of those that begin here; others' parents have decided.
    observe
        Sees every finished span, of unsampled traces too.
    """

    def __init__(
        self,
        exporter: Exporter,
        resource: Mapping[str, str],
        *,
        sampling: float,
        observe: Callable[[FinishedSpan], None] = lambda _span: None,
    ) -> None:
        self._observe = observe
        self._exporter = exporter
        self._resource = Resource(resource, conventions.SCHEMA_URL)
        self._scope = InstrumentationScope(conventions.SCOPE, schema_url=conventions.SCHEMA_URL)
        self._sampling = sampling
        self._pending: list[ReadableSpan] = []
        self._flush: asyncio.TimerHandle | None = None

    def start(
        self,
        name: str,
        *,
        traceparent: str | None,
        start_ns: int | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> RunningSpan:
        """Start a span; see Spans.start."""
        sampled = random.random() < self._sampling  # noqa: S311 - picks traces, hides nothing
        return spans.running(
            self, name, spans.parse(traceparent), sampled=sampled, start_ns=start_ns, attributes=attributes
        )

    def record(self, span: FinishedSpan) -> None:
        """Take a finished span; it is exported if its trace is sampled."""
        self._observe(span)
        if not span.context.sampled:
            return
        self._pending.append(self._readable(span))
        if len(self._pending) >= BATCH_SPANS:
            self.flush()
        elif self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Hand everything pending to the exporter."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._pending:
            batch, self._pending = self._pending, []
            self._exporter.offer(Batch("sidecar", len(batch), encode_spans(batch).SerializeToString()))

    def _readable(self, span: FinishedSpan) -> ReadableSpan:
        context = _otel_context(span.context.trace_id, span.context.span_id)
        parent = _otel_context(span.context.trace_id, span.parent_span_id) if span.parent_span_id else None
        attributes = dict(span.attributes)
        if span.error_code:
            attributes[conventions.ERROR_TYPE] = span.error_code
        return ReadableSpan(
            name=span.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            events=[Event(one.name, one.attributes, one.time_ns) for one in span.events],
            links=[Link(_otel_context(one.trace_id, one.span_id)) for one in span.links],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR, span.error_code) if span.error_code else Status(),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


class DisabledSpans:
    """The Spans of a pod without a collector: contexts travel on as they came, nothing is kept.

    Parameters
    ----------
    observe
        Sees every finished span.
    """

    def __init__(self, observe: Callable[[FinishedSpan], None] = lambda _span: None) -> None:
        self._observe = observe

    def start(
        self,
        name: str,
        *,
        traceparent: str | None,
        start_ns: int | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> RunningSpan:
        """Start a span that nobody will see."""
        return spans.running(
            self, name, spans.parse(traceparent), sampled=False, start_ns=start_ns, attributes=attributes
        )

    def record(self, span: FinishedSpan) -> None:
        """Have it observed, and forget it."""
        self._observe(span)

    def flush(self) -> None:
        """Do nothing."""


def _otel_context(trace_id: str, span_id: str) -> trace.SpanContext:
    return OtelContext(
        int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
