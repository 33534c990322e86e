"""Spans before they leave: contexts, the fake, the records' spans."""

import pytest

from guided_contract.records import Decode, HttpRequest
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.decode_spans import Decodes, decode_span
from guided_sidecar.telemetry.incidents import Desyncs, WorkerRestarts, compiling
from guided_sidecar.telemetry.otlp_spans import DisabledSpans
from guided_sidecar.telemetry.record_receiver import request_span
from guided_sidecar.telemetry.spans import MemorySpans
from support.collectors import eventually

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def request(**changes: object) -> HttpRequest:
    fields = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "start_ns": 10,
        "end_ns": 20,
        "method": "POST",
        "route": "/v1/completions",
        "status": 200,
    }
    return HttpRequest(**(fields | changes))  # type: ignore[arg-type]


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


def test_a_child_continues_its_parents_trace() -> None:
    made = MemorySpans()
    parent = made.start("grammar.prepare", traceparent=PARENT)
    child = made.start("grammar.compile", traceparent=parent.traceparent, start_ns=5)
    child.end(error_code="grammar_invalid", end_ns=9, attributes={"b": 2})
    parent.end()
    compiled, prepared = made.finished
    assert (prepared.context.trace_id, prepared.parent_span_id) == (TRACE, SPAN)
    assert compiled.parent_span_id == prepared.context.span_id
    assert (compiled.start_ns, compiled.end_ns, compiled.error_code) == (5, 9, "grammar_invalid")
    assert compiled.attributes == {"b": 2}


def test_a_span_ends_once() -> None:
    made = MemorySpans()
    span = made.start("grammar.load", traceparent=None)
    span.end()
    span.end(error_code="grammar_load_failed")
    assert [span.error_code for span in made.finished] == [""]


def test_an_unsampled_parent_makes_unsampled_children() -> None:
    made = MemorySpans()
    assert made.start("x", traceparent=f"00-{TRACE}-{SPAN}-00").traceparent.endswith("-00")


def test_without_a_collector_contexts_still_travel() -> None:
    span = DisabledSpans().start("x", traceparent=PARENT)
    span.end()
    assert span.traceparent.startswith(f"00-{TRACE}-")
    assert span.traceparent.endswith("-01")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "garbage",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
    ],
)
def test_what_is_no_traceparent_has_no_context(text: str | None) -> None:
    assert spans.parse(text) is None


def test_a_later_traceparent_version_is_read() -> None:
    context = spans.parse(f"01-{TRACE}-{SPAN}-03-more")
    assert context is not None
    assert (context.trace_id, context.span_id, context.sampled) == (TRACE, SPAN, True)


def test_the_root_has_the_ids_that_the_api_server_chose() -> None:
    span = request_span(request(parent_span_id="00f067aa0ba902b7", kind="json", grammar_key="k", stream=True))
    assert span.name == "POST /v1/completions"
    assert (span.context.traceparent, span.parent_span_id) == (PARENT, "00f067aa0ba902b7")
    assert (span.kind, span.start_ns, span.end_ns, span.error_code) == ("server", 10, 20, "")
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/completions",
        "url.scheme": "http",
        "guidedmodel.stream": True,
        "guidedmodel.grammar.kind": "json",
        "guidedmodel.grammar.key": "k",
    }


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
    assert request_span(request(status=status, error_code=code)).error_code == error


@pytest.mark.parametrize("changes", [{"trace_id": "xyz"}, {"span_id": "0" * 16}, {"parent_span_id": "no"}])
def test_ids_that_are_none_are_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no "):
        request_span(request(**changes))


def test_links_and_events_come_with_the_end() -> None:
    made = MemorySpans()
    span = made.start("grammar.prepare", traceparent=PARENT)
    span.link(None)
    span.link("garbage")
    span.link(f"00-{TRACE}-{'c' * 16}-01")
    span.event("grammar.worker.lost", {"guidedmodel.worker.loss": "Crashed"})
    span.end()
    (finished,) = made.finished
    assert [link.span_id for link in finished.links] == ["c" * 16]
    (event,) = finished.events
    assert (event.name, event.attributes) == ("grammar.worker.lost", {"guidedmodel.worker.loss": "Crashed"})
    assert finished.start_ns <= event.time_ns <= finished.end_ns


def test_a_decode_is_a_child_of_its_request() -> None:
    span = decode_span([decode(end_reason="completed")])
    assert (span.name, span.context.trace_id, span.parent_span_id) == ("guided.decode", TRACE, SPAN)
    assert (span.error_code, span.attributes["guidedmodel.rank"]) == ("", 1)
    assert span.attributes["guidedmodel.decode.fill.duration"] == 0.002


def test_a_decode_that_failed_says_so() -> None:
    span = decode_span([decode(), decode(rank=0, end_reason="sequence_dead_end")])
    assert span.error_code == span.attributes["guidedmodel.decode.end_reason"] == "sequence_dead_end"


def test_of_several_ranks_the_one_that_was_waited_for_tells() -> None:
    """Adding their times up would tell of waits that nobody had: ranks work side by side."""
    fast = decode(rank=0, exposed_ns=1_000_000, fill_ns=9_000_000, fill_max_ns=5_000_000, start_ns=5)
    slow = decode(rank=1, exposed_ns=3_000_000, fill_ns=7_000_000, fill_max_ns=4_000_000, end_ns=30)
    span = decode_span([fast, slow])
    assert (span.start_ns, span.end_ns) == (5, 30)
    told = {name.removeprefix("guidedmodel."): value for name, value in span.attributes.items()}
    assert (told["rank"], told["decode.ranks"]) == (1, 2)
    assert (told["decode.exposed.duration"], told["decode.fill.duration"]) == (0.003, 0.007)
    assert told["decode.fill.max"] == 0.005


class TestDecodes:
    async def test_one_span_when_every_rank_has_told(self) -> None:
        made = MemorySpans()
        decodes = Decodes(2, made, Desyncs(made))
        decodes.add(decode(rank=0))
        decodes.add(decode(rank=2))  # of another group, whatever its request is called
        assert made.finished == []
        decodes.add(decode(rank=1))
        assert [span.attributes["guidedmodel.decode.ranks"] for span in made.finished] == [2]
        decodes.flush()
        assert len(made.finished) == 2

    async def test_a_rank_that_tells_nothing_is_waited_for_a_while(self) -> None:
        made = MemorySpans()
        decodes = Decodes(2, made, Desyncs(made), patience_s=0.02)
        decodes.add(decode(rank=0))
        decodes.add(decode(rank=0, request_id="s"))
        await eventually(lambda: len(made.finished) == 2)
        decodes.add(decode(rank=1))
        await eventually(lambda: len(made.finished) == 3)

    async def test_a_name_that_is_used_again_is_another_sequence(self) -> None:
        made = MemorySpans()
        decodes = Decodes(2, made, Desyncs(made))
        decodes.add(decode(rank=0, steps=1))  # rank 1's was lost
        decodes.add(decode(rank=0, steps=2))
        decodes.add(decode(rank=1, steps=2))
        assert [span.attributes["guidedmodel.decode.steps"] for span in made.finished] == [1, 2]

    async def test_without_a_trace_there_is_no_span(self) -> None:
        made = MemorySpans()
        decodes = Decodes(1, made, Desyncs(made))
        decodes.add(decode(traceparent=None))
        assert made.finished == []


class TestIncidents:
    async def test_a_desync_is_told_with_the_request_that_it_ended(self) -> None:
        made = MemorySpans()
        desyncs = Desyncs(made)
        decodes = Decodes(2, made, desyncs)
        desyncs.found("r", [1])
        desyncs.fell_back()
        decodes.add(decode(rank=0))
        decodes.add(decode(rank=1))
        [fallback], [desync], [decoded] = map(
            made.named, ("placement.fallback", "ranks.desync", "guided.decode")
        )
        assert desync.links == (decoded.context,)
        assert fallback.links == (desync.context,)
        assert [event.name for event in decoded.events] == ["ranks.desync"]
        assert (desync.error_code, desync.attributes) == (
            "ranks_desynchronized",
            {"guidedmodel.desync.ranks": "1"},
        )
        assert desync.context.trace_id != TRACE
        assert desync.context.sampled

    async def test_a_desync_is_told_also_where_no_rank_tells_of_its_request(self) -> None:
        made = MemorySpans()
        desyncs = Desyncs(made, patience_s=0.01)
        desyncs.found("r", [0, 1])
        await eventually(lambda: made.finished)
        desyncs.found("s", [0, 1])
        desyncs.flush()
        assert [span.links for span in made.named("ranks.desync")] == [(), ()]

    def test_a_lost_worker_is_an_event_of_its_compile_and_a_span_until_it_is_replaced(self) -> None:
        made = MemorySpans()
        restarts = WorkerRestarts(made)
        restarts.lost("idle", is_fault=True)
        span = made.start("grammar.compile", traceparent=PARENT)
        token = compiling.set(span)
        restarts.lost("deadline", is_fault=False)
        compiling.reset(token)
        span.end()
        assert [event.attributes for event in made.finished[0].events] == [
            {"guidedmodel.worker.loss": "deadline"}
        ]
        assert made.named("grammar.worker.restart") == []
        restarts.replaced()
        restarts.replaced()
        idle, killed = made.named("grammar.worker.restart")
        assert (idle.error_code, idle.links) == ("idle", ())
        assert (killed.error_code, killed.links) == ("", (made.finished[0].context,))
