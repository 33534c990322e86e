"""Spans before they leave: contexts, what is sampled, the records' spans."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from guided_contract import records, trace_context
from guided_contract.records import AnyRecord, Decode
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.metrics import SidecarMetrics
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


def decode(**changes: object) -> Decode:
    fields = {
        "traceparent": PARENT,
        "rank": 0,
        "grammar_key": "k",
        "backend": "xgrammar",
        "start_ns": 10,
        "end_ns": 20,
        "fill_ns": 2_000_000,
    }
    return Decode(**(fields | changes))  # type: ignore[arg-type]


def taken(*sent: AnyRecord, share: float = 1.0) -> tuple[list[ReadableSpan], SidecarMetrics]:
    """Return the spans that a sidecar makes of records, and its metrics."""
    made, metrics = MemorySpans(share), SidecarMetrics()
    receiver = telemetry(made, metrics, tensor_parallel=len(sent))
    for record in sent:
        receiver.take(records.encode(record))
    return made.finished, metrics


async def decoded(*told: Decode) -> ReadableSpan:
    (span,) = taken(*told)[0]
    return span


def test_a_child_continues_its_parents_trace() -> None:
    made = MemorySpans()
    parent = made.tracer.start_span("grammar.prepare", spans.remote(PARENT))
    child = made.tracer.start_span("grammar.compile", spans.below(parent), start_time=5)
    spans.end(child, error_code="grammar_invalid", end_ns=9, attributes={"b": 2})
    spans.end(parent)
    compiled, prepared = made.finished
    assert (trace_id(prepared), parent_id(prepared)) == (TRACE, SPAN)
    assert parent_id(compiled) == span_id(prepared)
    assert (compiled.start_time, compiled.end_time, error_code(compiled)) == (5, 9, "grammar_invalid")
    assert attributes(compiled) == {"b": 2, "error.type": "grammar_invalid"}


@pytest.mark.parametrize("flags", ["00", "01", "02", "03"])
def test_the_callers_flags_and_state_are_kept(flags: str) -> None:
    made = MemorySpans()
    parent = made.tracer.start_span("grammar.prepare", spans.remote(PARENT[:-2] + flags, "a=b,c=d"))
    child = made.tracer.start_span("grammar.compile", spans.below(parent))
    child.end()
    assert traceparent(made.finished[0]).endswith(f"-{flags}")
    assert made.finished[0].context.trace_state.to_header() == "a=b,c=d"


@pytest.mark.parametrize(("share", "sampled"), [(0.0, False), (1.0, True)])
def test_sampling_decides_where_a_trace_begins(share: float, *, sampled: bool) -> None:
    tracer = MemorySpans(share).tracer
    begun = tracer.start_span("x", spans.remote(None))
    assert begun.get_span_context().trace_flags.sampled == sampled
    assert tracer.start_span("x", spans.remote(PARENT)).get_span_context().trace_flags.sampled
    assert tracer.start_span("x", spans.ALWAYS).get_span_context().trace_flags.sampled
    assert not tracer.start_span("x", spans.NEVER).get_span_context().trace_flags.sampled


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


async def test_a_decode_is_a_child_of_its_request() -> None:
    span = await decoded(decode(end_reason="completed", tracestate="a=b", takes_drafts=False))
    assert (span.name, trace_id(span), parent_id(span)) == ("guided.decode", TRACE, SPAN)
    assert (error_code(span), attributes(span)["guidedmodel.rank"]) == ("", 0)
    assert attributes(span)["guidedmodel.decode.fill.duration"] == 0.002
    assert attributes(span)["guidedmodel.decode.drafts.taken"] is False
    assert span.context.trace_state.to_header() == "a=b"


def test_of_several_ranks_the_first_of_each_group_tells() -> None:
    made, _ = taken(decode(rank=0), decode(rank=1), share=1.0)
    assert [attributes(span)["guidedmodel.rank"] for span in made] == [0]
    made, _ = taken(decode(rank=2), decode(rank=3))
    assert [attributes(span)["guidedmodel.rank"] for span in made] == [2]


def test_a_sequence_without_a_trace_has_no_span() -> None:
    assert taken(decode(traceparent=None))[0] == []
