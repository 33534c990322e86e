"""The sidecar's spans kept in a list, by the SDK's own provider."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import format_span_id, format_trace_id

from guided_contract.config import PodConfig
from guided_contract.records import Digests
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.pipeline import Telemetry


class MemorySpans(SpanProcessor):
    """What a `tracer` made; of unsampled traces what is measured. Traces that begin here are sampled."""

    def __init__(self, share: float = 1.0) -> None:
        self.finished: list[ReadableSpan] = []
        provider = spans.provider(Resource.get_empty(), share=share)
        provider.add_span_processor(self)
        self.tracer = spans.tracer(provider)
        self.provider = provider

    def on_end(self, span: ReadableSpan) -> None:
        self.finished.append(span)

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the finished spans of that name, in the order of their ends."""
        return [span for span in self.finished if span.name == name]


def telemetry(
    made: MemorySpans,
    metrics: Any,
    folder: Path = Path("none"),
    on_digests: Callable[[Digests], None] = lambda _digests: None,
    **config: Any,
) -> Telemetry:
    """Return the receiver of records whose socket is in a folder."""
    named = {"name": "t", "model": "m", "tokenizer": "m", "served_name": "m", "run_dir": str(folder)}
    receiver = Telemetry(PodConfig(**named, **config), on_digests)
    receiver.tracer, receiver.provider, receiver.metrics = made.tracer, made.provider, metrics
    return receiver


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    return f"00-{trace_id(span)}-{span_id(span)}-{context.trace_flags:02x}"


def trace_id(span: ReadableSpan) -> str:
    return format_trace_id(span.get_span_context().trace_id)


def span_id(span: ReadableSpan) -> str:
    return format_span_id(span.get_span_context().span_id)


def parent_id(span: ReadableSpan) -> str | None:
    """Return the parent's span id, None of a root."""
    return None if span.parent is None else format_span_id(span.parent.span_id)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def error_code(span: ReadableSpan) -> str:
    """Return why a span failed, "" if it did not; status and error.type say the same."""
    told = str(attributes(span).get("error.type", ""))
    assert (span.status.description or "") == told
    return told
