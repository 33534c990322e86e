"""Spans made of records: of HTTP requests and guided sequences."""

from collections.abc import Mapping
from typing import Final

from opentelemetry.trace import SpanKind, Tracer
from opentelemetry.util.types import AttributeValue

from guided_contract.errors import ErrorCode
from guided_contract.records import Decode, HttpRequest
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.metrics import DECODE_COUNTS

_CODES: Final = frozenset(code.value for code in ErrorCode)
_CLIENT_GONE: Final = 499
_METHOD: Final = "POST"  # of all that generates
# Routes of which the conventions know what they do; the others have no gen_ai.* attributes.
_OPERATIONS: Final[Mapping[str, str]] = {
    "/v1/completions": "text_completion",
    "/inference/v1/generate": "text_completion",
    "/v1/chat/completions": "chat",
    "/v1/chat/completions/batch": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/cohere/v2/chat": "chat",
}
# By what a request asked for; of a structural tag, only some parts may be JSON.
_OUTPUTS: Final = {
    "json_object": "json",
    "json": "json",
    "regex": "text",
    "choice": "text",
    "grammar": "text",
}


def make_request(tracer: Tracer, record: HttpRequest) -> None:
    """Make the span of a request, by its own ids, if its trace is sampled: the one SERVER span of it.

    The status is an error also for 4xx that carry a code of ours, and for a client that has gone: the
    conventions leave 4xx unset for want of knowledge about the request, and here it is known that the
    caller did not get what was asked for.
    """
    if not record.sampled:
        return
    own, below = (
        spans.remote(f"00-{record.trace_id}-{span_id}-{record.flags:02x}", state, within=spans.ALWAYS)
        for span_id, state in ((record.span_id, None), (record.parent_span_id, record.tracestate))
    )
    name, told = f"{_METHOD} {record.route}", request_attributes(record)
    with spans.called(spans.parent_of(own)):
        span = tracer.start_span(name, below, SpanKind.SERVER, told, start_time=record.start_ns)
    error_code = record.error_code or (str(record.status) if record.status >= _CLIENT_GONE else "")
    spans.end(span, error_code=error_code, end_ns=record.end_ns)


def request_attributes(record: HttpRequest) -> dict[str, AttributeValue]:
    """Return what a request's span says, by OpenTelemetry's conventions for HTTP servers and for GenAI.

    https://opentelemetry.io/docs/specs/semconv/http/http-spans/ and gen-ai/gen-ai-spans/, of SCHEMA_URL.
    """
    told: dict[str, AttributeValue | None] = {
        "http.request.method": _METHOD,
        "http.route": record.route,
        "http.response.status_code": record.status,
        "url.path": record.route,
        "url.scheme": record.scheme,
        "guidedmodel.stream": record.stream,
        c.GRAMMAR_KIND: record.kind,
        c.GRAMMAR_KEY: record.grammar_key,
    }
    if operation := _OPERATIONS.get(record.route):
        told |= {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "vllm",  # the conventions name none that everybody runs themselves
            "gen_ai.request.model": record.model,
            "gen_ai.output.type": _OUTPUTS.get(record.kind or ""),
        }
    return {name: value for name, value in told.items() if value is not None}


def make_decode(tracer: Tracer, record: Decode) -> None:
    """Make the span of a sequence, of the record of one of its ranks: all do the same work.

    A sequence without a trace has none.
    """
    parent = spans.remote(record.traceparent, record.tracestate)
    if spans.parent_of(parent).is_valid:
        span = tracer.start_span(c.GUIDED_DECODE, parent, start_time=record.start_ns)
        error_code = record.end_reason if record.end_reason in _CODES else ""
        spans.end(span, error_code=error_code, end_ns=record.end_ns, attributes=decode_attributes(record))


def decode_attributes(record: Decode) -> dict[str, AttributeValue]:
    """Return what the span of a sequence says."""
    return {
        c.RANK: record.rank,
        c.GRAMMAR_KEY: record.grammar_key,
        c.GRAMMAR_BACKEND: record.backend,
        "guidedmodel.decode.fill.max": record.fill_max_ns / 1e9,
        **{f"guidedmodel.decode.{count.attribute}": count.of(record) for count in DECODE_COUNTS},
        "guidedmodel.decode.drafts.taken": record.takes_drafts,
        "guidedmodel.decode.end_reason": record.end_reason,
    }
