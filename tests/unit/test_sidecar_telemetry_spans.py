"""Spans before they leave: contexts, the fake, the records' spans."""

import pytest

from guided_contract.records import Decode, HttpRequest
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.otlp_spans import DisabledSpans
from guided_sidecar.telemetry.receiver import decode_span, request_span
from guided_sidecar.telemetry.spans import MemorySpans

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
        (499, None, ""),
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


def test_a_decode_is_a_child_of_its_request() -> None:
    span = decode_span(decode(end_reason="completed"))
    assert span is not None
    assert (span.name, span.context.trace_id, span.parent_span_id) == ("guided.decode", TRACE, SPAN)
    assert (span.error_code, span.attributes["guidedmodel.rank"]) == ("", 1)
    assert span.attributes["guidedmodel.decode.fill.duration"] == 0.002


def test_a_decode_that_failed_says_so() -> None:
    span = decode_span(decode(end_reason="sequence_dead_end"))
    assert span is not None
    assert span.error_code == "sequence_dead_end"


def test_a_decode_without_a_trace_has_no_span() -> None:
    assert decode_span(decode(traceparent=None)) is None
