"""Exemplars: which trace a bucket's figure came from last, for whoever reads OpenMetrics."""

from opentelemetry.trace import SpanContext, format_span_id, format_trace_id

from guided_contract.trace_context import TraceContext

Exemplar = dict[str, str]


class Exemplars:
    """Names traces, if they are exported at all.

    Parameters
    ----------
    are_kept
        Whether there is a collector.
    """

    def __init__(self, *, are_kept: bool) -> None:
        self._are_kept = are_kept

    def of_record(self, context: TraceContext | None) -> Exemplar | None:
        """Return the labels of a record's span; None where its trace is not sampled."""
        if context is None or not (self._are_kept and context.sampled):
            return None
        return _labels(context.trace_id, context.span_id)

    def of_span(self, context: SpanContext | None) -> Exemplar | None:
        """Return the labels of a span; None where its trace is not sampled."""
        if context is None or not (self._are_kept and context.trace_flags.sampled):
            return None
        return _labels(format_trace_id(context.trace_id), format_span_id(context.span_id))


def _labels(trace_id: str, span_id: str) -> Exemplar:
    return {"trace_id": trace_id, "span_id": span_id}  # as OpenTelemetry names them for Prometheus
