"""Spans before they leave: contexts, what is sampled, those of requests and sequences by their records."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.trace import SpanKind

from guided_contract import records, trace_context
from guided_contract.records import AnyRecord
from guided_engine.admission.gate import ROUTES, UNGUIDED_ROUTES
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.metrics import SidecarMetrics
from support import monitored
from support.monitored import request
from support.spans import (
    MemorySpans,
    attributes,
    error_code,
    parent_id,
    span_id,
    telemetry,
    trace_id,
    traceparent,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
CALLER = "00f067aa0ba902b7"


def decode(**changes: Any) -> AnyRecord:
    return monitored.decode(**{"traceparent": PARENT, "fill_ns": 2_000_000, **changes})


def taken(*sent: AnyRecord, share: float = 1.0) -> tuple[list[ReadableSpan], SidecarMetrics]:
    """Return the spans that a sidecar makes of records, and its metrics."""
    made, metrics = MemorySpans(share), SidecarMetrics()
    receiver = telemetry(made, metrics, tensor_parallel=len(sent))
    for record in sent:
        receiver.take(records.encode(record))
    return made.finished, metrics


@pytest.mark.parametrize("flags", ["00", "01", "02", "03"])
def test_a_child_continues_its_parents_trace_with_the_callers_flags_and_state(flags: str) -> None:
    made = MemorySpans()
    parent = made.tracer.start_span("grammar.prepare", spans.remote(PARENT[:-2] + flags, "a=b,c=d"))
    child = made.tracer.start_span("grammar.load", spans.below(parent), start_time=5)
    spans.end(child, error_code="grammar_invalid", end_ns=9, attributes={"b": 2})
    spans.end(parent)
    loaded = made.finished[0]
    assert traceparent(loaded).endswith(f"-{flags}")
    assert loaded.context.trace_state.to_header() == "a=b,c=d"
    assert (loaded.start_time, loaded.end_time, error_code(loaded)) == (5, 9, "grammar_invalid")
    assert attributes(loaded) == {"b": 2, "error.type": "grammar_invalid"}
    for prepared in made.named("grammar.prepare"):
        assert (trace_id(prepared), parent_id(prepared)) == (TRACE, SPAN)
        assert parent_id(loaded) == span_id(prepared)


@pytest.mark.parametrize(("share", "sampled"), [(0.0, False), (1.0, True)])
def test_sampling_decides_where_a_trace_begins(share: float, *, sampled: bool) -> None:
    tracer = MemorySpans(share).tracer
    for context, is_sampled in (
        (spans.remote(None), sampled),
        (spans.remote(PARENT), True),
        (spans.ALWAYS, True),
        (spans.NEVER, False),
    ):
        assert tracer.start_span("x", context).get_span_context().trace_flags.sampled == is_sampled


def test_what_is_measured_is_recorded_whatever_is_sampled() -> None:
    made = MemorySpans()
    for name in ("grammar.load", "guided.decode"):
        made.tracer.start_span(name, spans.remote(PARENT[:-2] + "00"), attributes={"a": 1}).end()
    assert [(span.name, attributes(span)) for span in made.finished] == [("grammar.load", {"a": 1})]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (PARENT, True),
        (f"01-{TRACE}-{SPAN}-03-more", True),
        ("", False),
        (f"{PARENT}-more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
    ],
)
def test_engine_and_sidecar_take_the_same_traceparents(text: str, *, valid: bool) -> None:
    theirs, ours = spans.parent_of(spans.remote(text)), trace_context.parse(text)
    assert theirs.is_valid == (ours is not None) == valid
    if ours is not None:
        assert (f"{theirs.trace_id:032x}", f"{theirs.span_id:016x}") == (ours.trace_id, ours.span_id)
        assert theirs.trace_flags == ours.flags


def test_a_request_has_the_ids_that_the_api_server_chose() -> None:
    (span,), _ = taken(request(parent_span_id=CALLER, grammar_key="k", stream=True, start_ns=10))
    assert span.name == "POST /v1/completions"
    assert (trace_id(span), span_id(span), parent_id(span)) == (TRACE, SPAN, CALLER)
    assert (span.kind, span.start_time, span.end_time) == (SpanKind.SERVER, 10, 300_000_000)
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


def test_the_operation_of_a_route_is_one_of_the_conventions_or_none() -> None:
    operations = {value.value for value in gen_ai.GenAiOperationNameValues}
    for route in ROUTES | UNGUIDED_ROUTES:
        (span,), _ = taken(request(route=route, kind=None))
        told = {name: value for name, value in attributes(span).items() if name.startswith("gen_ai.")}
        assert told == {} or told[gen_ai.GEN_AI_OPERATION_NAME] in operations
        assert told or route in UNGUIDED_ROUTES


@pytest.mark.parametrize("changes", [{}, {"parent_span_id": CALLER}])
def test_the_api_server_has_decided_what_is_sampled(changes: dict[str, Any]) -> None:
    assert taken(request(**changes), share=0.0)[0]
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
def test_a_request_is_an_error_when_the_caller_was_failed(status: int, code: str | None, error: str) -> None:
    (span,), _ = taken(request(status, code))
    assert error_code(span) == error


@pytest.mark.parametrize("changes", [{"trace_id": "xyz"}, {"span_id": "B" * 16}, {"parent_span_id": "no"}])
@pytest.mark.parametrize("flags", [1, 0])
def test_ids_that_are_none_are_refused(changes: dict[str, str], flags: int) -> None:
    made, metrics = taken(request(**changes, flags=flags))
    assert made == []
    assert b"guidedmodel_records_invalid_total 1.0" in metrics.render()


def test_a_sequence_is_a_child_of_its_request() -> None:
    (span,), _ = taken(decode(tracestate="a=b", takes_drafts=False))
    assert (span.name, trace_id(span), parent_id(span)) == ("guided.decode", TRACE, SPAN)
    assert (error_code(span), attributes(span)["guidedmodel.rank"]) == ("", 0)
    assert attributes(span)["guidedmodel.decode.fill.duration"] == 0.002
    assert attributes(span)["guidedmodel.decode.drafts.taken"] is False
    assert span.context.trace_state.to_header() == "a=b"
    assert taken(decode(traceparent=None))[0] == []


@pytest.mark.parametrize("first", [0, 2])
def test_of_several_ranks_the_first_of_each_group_tells(first: int) -> None:
    made, _ = taken(decode(rank=first), decode(rank=first + 1))
    assert [attributes(span)["guidedmodel.rank"] for span in made] == [first]
