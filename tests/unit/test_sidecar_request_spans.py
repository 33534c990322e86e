"""The span of an HTTP request, made of the API server's record."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.trace import SpanKind

from guided_contract import records
from guided_contract.records import HttpRequest
from guided_engine.admission.gate import ROUTES, UNGUIDED_ROUTES
from guided_sidecar.telemetry.metrics import SidecarMetrics
from support.spans import MemorySpans, attributes, error_code, parent_id, span_id, telemetry, trace_id

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


def request(**changes: object) -> HttpRequest:
    fields = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "start_ns": 10,
        "end_ns": 20,
        "route": "/v1/completions",
        "status": 200,
    }
    return HttpRequest(**(fields | changes))  # type: ignore[arg-type]


def taken(*sent: HttpRequest, share: float = 1.0) -> tuple[list[ReadableSpan], SidecarMetrics]:
    """Return the spans that a sidecar makes of records, and its metrics."""
    made, metrics = MemorySpans(share), SidecarMetrics()
    receiver = telemetry(made, metrics)
    for record in sent:
        receiver.take(records.encode(record))
    return made.finished, metrics


def test_the_root_has_the_ids_that_the_api_server_chose() -> None:
    (span,), _ = taken(request(parent_span_id="00f067aa0ba902b7", kind="json", grammar_key="k", stream=True))
    assert span.name == "POST /v1/completions"
    assert (trace_id(span), span_id(span), parent_id(span)) == (TRACE, SPAN, "00f067aa0ba902b7")
    assert (span.kind, span.start_time, span.end_time, error_code(span)) == (SpanKind.SERVER, 10, 20, "")
    assert attributes(span) == {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/completions",
        "url.scheme": "http",
        "guidedmodel.stream": True,
        "guidedmodel.grammar.kind": "json",
        "guidedmodel.grammar.key": "k",
        gen_ai.GEN_AI_OPERATION_NAME: "text_completion",
        gen_ai.GEN_AI_PROVIDER_NAME: "vllm",
        gen_ai.GEN_AI_OUTPUT_TYPE: "json",
    }


@pytest.mark.parametrize("route", sorted(ROUTES | UNGUIDED_ROUTES))
def test_the_operation_of_a_route_is_one_of_the_conventions_or_none(route: str) -> None:
    (span,), _ = taken(request(route=route))
    told = {name: value for name, value in attributes(span).items() if name.startswith("gen_ai.")}
    operations = {value.value for value in gen_ai.GenAiOperationNameValues}
    assert told == {} or told[gen_ai.GEN_AI_OPERATION_NAME] in operations
    assert told or route in UNGUIDED_ROUTES


@pytest.mark.parametrize("changes", [{}, {"parent_span_id": "00f067aa0ba902b7"}])
def test_the_api_server_has_decided_what_is_sampled(changes: dict[str, Any]) -> None:
    (span,), _ = taken(request(**changes), share=0.0)
    assert (trace_id(span), span_id(span), parent_id(span)) == (TRACE, SPAN, changes.get("parent_span_id"))
    assert taken(request(**changes, flags=0))[0] == []


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (200, None, ""),
        (404, None, ""),  # the conventions: a client's mistake is no error of the server's
        (499, None, "499"),
        (400, "grammar_invalid", "grammar_invalid"),
        (200, "sequence_dead_end", "sequence_dead_end"),  # streaming had begun
        (500, None, "500"),
    ],
)
def test_the_root_is_an_error_when_the_caller_was_failed(status: int, code: str | None, error: str) -> None:
    (span,), _ = taken(request(status=status, error_code=code))
    assert error_code(span) == error


@pytest.mark.parametrize("changes", [{"trace_id": "xyz"}, {"span_id": "B" * 16}, {"parent_span_id": "no"}])
@pytest.mark.parametrize("flags", [1, 0])
def test_ids_that_are_none_are_refused(changes: dict[str, str], flags: int) -> None:
    made, metrics = taken(request(**changes, flags=flags))
    assert made == []
    assert b"guidedmodel_records_invalid_total 1.0" in metrics.render()
