"""Spans before they leave: contexts, what is sampled, the records' spans."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import use_span

from guided_contract import records, trace_context
from guided_contract.records import AnyRecord, Decode
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.decode_spans import Decodes
from guided_sidecar.telemetry.incidents import Desyncs, WorkerRestarts
from guided_sidecar.telemetry.metrics import SidecarMetrics
from support.collectors import eventually
from support.spans import (
    MemorySpans,
    attributes,
    error_code,
    events,
    linked,
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
        "request_id": "r",
        "traceparent": PARENT,
        "rank": 1,
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
        ("garbage", False),
        (f"{PARENT}-more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{TRACE}-{SPAN}", False),
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
    assert (error_code(span), attributes(span)["guidedmodel.rank"]) == ("", 1)
    assert attributes(span)["guidedmodel.decode.fill.duration"] == 0.002
    assert attributes(span)["guidedmodel.decode.drafts.taken"] is False
    assert span.context.trace_state.to_header() == "a=b"


async def test_a_decode_that_failed_says_so() -> None:
    span = await decoded(decode(), decode(rank=0, end_reason="sequence_dead_end"))
    told = attributes(span)["guidedmodel.decode.end_reason"]
    assert error_code(span) == told == "sequence_dead_end"


async def test_of_several_ranks_the_one_that_was_waited_for_tells() -> None:
    """Adding their times up would tell of waits that nobody had: ranks work side by side."""
    fast = decode(rank=0, exposed_ns=1_000_000, fill_ns=9_000_000, fill_max_ns=5_000_000, start_ns=5)
    slow = decode(rank=1, exposed_ns=3_000_000, fill_ns=7_000_000, fill_max_ns=4_000_000, end_ns=30)
    span = await decoded(fast, slow)
    assert (span.start_time, span.end_time) == (5, 30)
    told = {name.removeprefix("guidedmodel."): value for name, value in attributes(span).items()}
    assert (told["rank"], told["decode.ranks"]) == (1, 2)
    assert (told["decode.exposed.duration"], told["decode.fill.duration"]) == (0.003, 0.007)
    assert told["decode.fill.max"] == 0.005


class TestDecodes:
    async def test_one_span_when_every_rank_has_told(self) -> None:
        made = MemorySpans()
        decodes = Decodes(2, made.tracer, Desyncs(made.tracer))
        decodes.add(decode(rank=0))
        decodes.add(decode(rank=2))  # of another group, whatever its request is called
        assert made.finished == []
        decodes.add(decode(rank=1))
        assert [attributes(span)["guidedmodel.decode.ranks"] for span in made.finished] == [2]
        decodes.flush()
        assert len(made.finished) == 2

    async def test_a_rank_that_tells_nothing_is_waited_for_a_while(self) -> None:
        made = MemorySpans()
        decodes = Decodes(2, made.tracer, Desyncs(made.tracer), patience_s=0.02)
        decodes.add(decode(rank=0))
        decodes.add(decode(rank=0, request_id="s"))
        await eventually(lambda: len(made.finished) == 2)
        decodes.add(decode(rank=1))
        await eventually(lambda: len(made.finished) == 3)

    async def test_without_a_trace_there_is_no_span(self) -> None:
        made = MemorySpans()
        decodes = Decodes(1, made.tracer, Desyncs(made.tracer))
        decodes.add(decode(traceparent=None))
        assert made.finished == []


class TestIncidents:
    async def test_a_desync_is_told_with_the_request_that_it_ended(self) -> None:
        made = MemorySpans()
        desyncs = Desyncs(made.tracer)
        decodes = Decodes(2, made.tracer, desyncs)
        desyncs.found("r", [1])
        decodes.add(decode(rank=0))
        decodes.add(decode(rank=1))
        [desync], [decoded] = map(made.named, ("ranks.desync", "guided.decode"))
        assert linked(decoded) == [span_id(desync)]
        told = {"guidedmodel.desync.ranks": "1"}
        assert events(decoded) == [("ranks.desync", told)]
        assert decoded.events[0].timestamp == desync.start_time
        assert error_code(desync) == "ranks_desynchronized"
        assert attributes(desync) == {**told, "error.type": "ranks_desynchronized"}
        assert trace_id(desync) != TRACE
        assert desync.parent is None
        assert desync.context.trace_flags.sampled

    def test_a_lost_worker_is_an_event_of_its_compile_and_a_span_until_it_is_replaced(self) -> None:
        made = MemorySpans()
        restarts = WorkerRestarts(made.tracer)
        restarts.lost("idle", is_fault=True)
        span = made.tracer.start_span("grammar.compile", spans.remote(PARENT))
        with use_span(span, end_on_exit=True):
            restarts.lost("deadline", is_fault=False)
        assert events(made.finished[0]) == [("grammar.worker.lost", {"guidedmodel.worker.loss": "deadline"})]
        assert made.named("grammar.worker.restart") == []
        restarts.replaced()
        restarts.replaced()
        idle, killed = made.named("grammar.worker.restart")
        assert (error_code(idle), linked(idle)) == ("idle", [])
        assert (error_code(killed), linked(killed)) == ("", [span_id(made.finished[0])])
        assert (idle.parent, killed.parent) == (None, None)
