"""Spans on their way from an exporter to a printed tree."""

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from guided_operator.cli.local.traces import LATEST_S, SETTLE_S, Collector, TraceBook, tree

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def span(
    name: str,
    span_id: str,
    parent_id: str = "",
    start: int = 0,
    attributes: dict[str, str | int] | None = None,
) -> Span:
    made = Span(
        trace_id=bytes.fromhex(TRACE),
        span_id=span_id.encode(),
        parent_span_id=parent_id.encode(),
        name=name,
        kind=Span.SPAN_KIND_SERVER if name.startswith("POST") else Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start * 10**6,
        end_time_unix_nano=(start + 5) * 10**6,
    )
    for key, value in (attributes or {}).items():
        field = "string_value" if isinstance(value, str) else "int_value"
        made.attributes.add(key=key, value={field: value})
    return made


def test_tree_shows_children_below_their_parents_in_order_of_time() -> None:
    spans = [
        span("grammar.load", "e", "c", 4, attributes={"guidedmodel.rank": 1}),
        span("llm_request", "b", "a", 9),
        span("grammar.prepare", "c", "a", 2),
        span("grammar.compile", "d", "c", 3, attributes={"guidedmodel.grammar.backend": "xgrammar"}),
        span("POST /v1/completions", "a", "f" * 16, 1, attributes={"http.response.status_code": 200}),
    ]
    assert tree(spans).splitlines() == [
        f"trace {TRACE}",
        "POST /v1/completions         5.0 ms  status 200",
        "├─ grammar.prepare           5.0 ms",
        "│  ├─ grammar.compile        5.0 ms  backend xgrammar",
        "│  └─ grammar.load           5.0 ms  rank 1",
        "└─ llm_request               5.0 ms",
    ]


def test_a_span_without_its_parent_stands_at_the_top_and_a_circle_hangs_nothing() -> None:
    lines = tree([span("llm_request", "b", "gone", 2), span("POST /v1/x", "a", "", 1)]).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["POST /v1/x", "llm_request"]
    assert "POST /v1/x" in tree([span("a", "1", "2"), span("b", "2", "1"), span("POST /v1/x", "3")])


ROOT = span("POST /v1/x", "a", attributes={"http.response.status_code": 200})
GUIDED_ROOT = span(
    "POST /v1/x", "a", attributes={"http.response.status_code": 200, "guidedmodel.grammar.kind": "json"}
)
REFUSED_ROOT = span("POST /v1/x", "a", attributes={"http.response.status_code": 400})
ENGINE = span("llm_request", "b", "a")
DECODE = span("guided.decode", "c", "a")


@pytest.mark.parametrize(
    ("spans", "comes"),
    [
        ([ENGINE], "never"),  # without its root it may still grow
        ([ROOT], "late"),  # without the engine's, and not for ever
        ([ROOT, ENGINE], "soon"),
        ([GUIDED_ROOT, ENGINE], "late"),  # the sidecar sends that of the decode by itself
        ([GUIDED_ROOT, ENGINE, DECODE], "soon"),
        ([REFUSED_ROOT], "soon"),  # and no engine saw it
    ],
)
def test_a_trace_is_handed_out_once_when_it_is_whole_and_quiet(spans: list[Span], comes: str) -> None:
    book = TraceBook()
    book.add(spans, now_s=0.0)
    assert book.ripe(SETTLE_S / 2) == []
    assert len(book.ripe(2 * SETTLE_S)) == (comes == "soon")
    assert len(book.ripe(LATEST_S + 0.1)) == (comes == "late")


def test_collector_refuses_what_is_no_export() -> None:
    gzipped = {"Content-Encoding": "gzip"}
    with Collector(TraceBook()) as receiver:
        for path, content, headers, status in (
            ("traces", b"\xff\xff", {}, 400),
            ("traces", b"no", gzipped, 400),
            ("logs", b"", {}, 404),
            ("traces", b"", {}, 200),
        ):
            answer = httpx.post(f"{receiver.endpoint}/v1/{path}", content=content, headers=headers)
            assert answer.status_code == status
