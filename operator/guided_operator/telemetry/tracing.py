"""A trace of each pass, sent by OTLP/HTTP where the settings name a collector; else it costs next to nothing.

::

    reconcile            one pass over a GuidedModel
    |- observe           reads of the model, its grammars' ConfigMaps, its sidecars' pages
    |- plan
    |- apply             writes of children
    `- report            the status and events
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

from guided_operator.kube.key import Key

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.40.0"
SERVICE: Final = "guidedmodel-operator"
RECONCILE: Final = "reconcile"
STEPS: Final = ("observe", "plan", "apply", "report")
MODEL_NAME: Final = "guidedmodel.name"
MODEL_NAMESPACE: Final = "k8s.namespace.name"
QUEUE_WAIT: Final = "guidedmodel.queue.wait"
ERROR_TYPE: Final = "error.type"

# What is still queued when the operator ends is sent for so long.
_FLUSH_MS: Final = 3000
_tracer = trace.get_tracer("guided_operator", schema_url=SCHEMA_URL)


@contextmanager
def exporting(endpoint: str, sampling: float, pod_name: str) -> Iterator[None]:
    """Send spans to the collector at this base URL while the context lasts; "": make none.

    The SDK's own variables say the rest: OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE.
    A collector that is away costs its spans, and nothing else: the queue is bounded.
    """
    if not endpoint:
        yield
        return
    # Not before it is asked for: it brings the protobuf and requests libraries.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - late
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - late
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - late
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - late
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415 - late

    about = {"service.name": SERVICE, "service.instance.id": pod_name, "k8s.pod.name": pod_name}
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(sampling)),
        resource=Resource.create(about, SCHEMA_URL),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_FLUSH_MS / 1000)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.force_flush(_FLUSH_MS)
        provider.shutdown()


def reconcile(key: Key, wait_s: float) -> AbstractContextManager[Span]:
    """Make the root span of a pass; `failed` says on it why the pass did."""
    attributes: dict[str, str | float] = {
        MODEL_NAMESPACE: key.namespace,
        MODEL_NAME: key.name,
        QUEUE_WAIT: round(wait_s, 6),
    }
    return _tracer.start_as_current_span(RECONCILE, attributes=attributes, record_exception=False)


def step(name: str) -> AbstractContextManager[object]:
    """Make the span of one step of a pass."""
    return _tracer.start_as_current_span(name, record_exception=False)


def failed(span: Span, reason: str, message: str) -> None:
    """Mark a span."""
    span.set_status(Status(StatusCode.ERROR, message))
    span.set_attribute(ERROR_TYPE, reason)
