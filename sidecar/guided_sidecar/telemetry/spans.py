"""The sidecar's spans: those of OpenTelemetry's SDK, and what its tracer is told beside its defaults.

Makers of spans get a Tracer. A parent in another process comes as W3C texts (`remote`), one in this process
as its span (`below`). Never start a span without a context: the SDK then takes the one that happens to run.
"""

import contextlib
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanContext, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from guided_sidecar.telemetry import conventions as c

# Spans that processors see, to measure them, although their traces are not sampled.
MEASURED: Final = frozenset({c.GRAMMAR_PREPARE, c.GRAMMAR_COMPILE, c.GRAMMAR_PROOF, c.GRAMMAR_LOAD})

_ROOTS: Final = contexts.create_key("guided-roots")  # sampling.Sampler: decides where a trace begins
_IDS: Final = contexts.create_key("guided-ids")  # SpanContext: what the next span is to be called
_propagator: Final = TraceContextTextMapPropagator()

# Where a trace begins that is exported whatever the sampling, and one that never is.
ALWAYS: Final = contexts.set_value(_ROOTS, sampling.ALWAYS_ON, Context())
NEVER: Final = contexts.set_value(_ROOTS, sampling.ALWAYS_OFF, Context())
_NONE: Final[Attributes] = MappingProxyType({})


def provider(resource: Resource, *, share: float) -> TracerProvider:
    """Return a provider without processors; `share` (0 to 1) of the traces that begin here is sampled."""
    return TracerProvider(_Sampler(share), resource, shutdown_on_exit=False, id_generator=_Ids())


def tracer(of: TracerProvider) -> Tracer:
    """Return the tracer of our instrumentation scope."""
    return of.get_tracer(c.SCOPE, schema_url=c.SCHEMA_URL)


def remote(
    traceparent: str | None, tracestate: str | None = None, *, within: Context | None = None
) -> Context:
    """Return the context below another process' span; `within` (empty) where there is no valid one."""
    carrier = {"traceparent": traceparent or ""}
    if tracestate:
        carrier["tracestate"] = tracestate
    return _propagator.extract(carrier, Context() if within is None else within)


def below(span: Span) -> Context:
    """Return the context below a span of this process; it does not keep the span's attributes alive."""
    return trace.set_span_in_context(trace.NonRecordingSpan(span.get_span_context()), Context())


def parent_of(context: Context) -> SpanContext:
    """Return the span that a context is below; not valid where there is none."""
    return trace.get_current_span(context).get_span_context()


@contextlib.contextmanager
def called(own: SpanContext) -> Iterator[None]:
    """Give the span that is started within ids that were chosen elsewhere."""
    token = contexts.attach(contexts.set_value(_IDS, own))
    try:
        yield
    finally:
        contexts.detach(token)


def end(
    span: Span, *, error_code: str = "", end_ns: int | None = None, attributes: Attributes = _NONE
) -> None:
    """End a span, by `error_code` with status error; `end_ns` is CLOCK_REALTIME nanoseconds, None: now."""
    if attributes:
        span.set_attributes(attributes)
    if error_code:
        span.set_attribute(c.ERROR_TYPE, error_code)
        span.set_status(trace.Status(trace.StatusCode.ERROR, error_code))
    span.end(end_ns)


class _Ids(RandomIdGenerator):
    """Random ids, but for a span that has been called by its own."""

    def generate_trace_id(self) -> int:
        own = contexts.get_value(_IDS)
        return own.trace_id if isinstance(own, SpanContext) else super().generate_trace_id()

    def generate_span_id(self) -> int:
        own = contexts.get_value(_IDS)
        return own.span_id if isinstance(own, SpanContext) else super().generate_span_id()


class _Sampler(sampling.Sampler):
    """By the parent's decision, else the context's, else a share by trace id; MEASURED is recorded."""

    def __init__(self, share: float) -> None:
        self._share = sampling.TraceIdRatioBased(share)

    def should_sample(  # noqa: PLR0913, PLR0917 - the SDK's signature
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: trace.SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[trace.Link] | None = None,
        trace_state: trace.TraceState | None = None,
    ) -> sampling.SamplingResult:
        roots = contexts.get_value(_ROOTS, parent_context)
        sampler = sampling.ParentBased(roots if isinstance(roots, sampling.Sampler) else self._share)
        result = sampler.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        if result.decision is sampling.Decision.DROP and name in MEASURED:
            return sampling.SamplingResult(sampling.Decision.RECORD_ONLY, attributes, result.trace_state)
        return result

    def get_description(self) -> str:
        return "GuidedSidecar"
