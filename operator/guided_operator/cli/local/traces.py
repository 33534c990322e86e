"""Spans as they come in, and each request's trace as a tree of text."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Value = str | int | float | bool

SETTLE_S = 1.0  # spans of one request come from two exporters; this long without another, the trace is whole
LATEST_S = 8.0  # and so long a trace waits for the engine's and the decode's: vLLM sends every 5 s

ENGINE_SPAN = "llm_request"
_DECODE_SPAN = "guided.decode"
_GRAMMAR_KIND = "guidedmodel.grammar.kind"
# What a line shows of its span, in this order, and how it calls it.
_SHOWN = (
    ("http.response.status_code", "status"),
    ("error.type", "error"),
    ("guidedmodel.rank", "rank"),
    (_GRAMMAR_KIND, "kind"),
    ("guidedmodel.grammar.backend", "backend"),
    ("guidedmodel.decode.tokens", "tokens"),
    ("guidedmodel.decode.steps", "steps"),
    ("guidedmodel.decode.end_reason", "end"),
    ("gen_ai.usage.prompt_tokens", "prompt tokens"),
    ("gen_ai.usage.completion_tokens", "completion tokens"),
)
_DRAFTS = "guidedmodel.decode.drafts."  # what became of them: proposed, accepted, refused


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Ids are lowercase hex; times are CLOCK_REALTIME nanoseconds."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    is_root: bool = False
    attributes: Mapping[str, Value] = field(default_factory=dict)


class TraceBook:
    """Collects spans from any thread and hands out the traces that are whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[str, list[Span]] = {}
        self._last_s: dict[str, float] = {}
        self._root_s: dict[str, float] = {}

    def add(self, spans: Sequence[Span], now_s: float) -> None:
        """Take spans; `now_s` is a monotonic clock."""
        with self._lock:
            for span in spans:
                self._spans.setdefault(span.trace_id, []).append(span)
                self._last_s[span.trace_id] = now_s
                if span.is_root:
                    self._root_s.setdefault(span.trace_id, now_s)

    def ripe(self, now_s: float) -> list[list[Span]]:
        """Return, once, each trace whose root came and to which no more spans are coming."""
        with self._lock:
            done = [trace_id for trace_id in self._root_s if self._is_whole(trace_id, now_s)]
            for trace_id in done:
                del self._last_s[trace_id], self._root_s[trace_id]
            return [self._spans.pop(trace_id) for trace_id in done]

    def _is_whole(self, trace_id: str, now_s: float) -> bool:
        if now_s - self._last_s[trace_id] < SETTLE_S:
            return False
        spans = self._spans[trace_id]
        names = {span.name for span in spans}
        is_guided = any(span.is_root and _GRAMMAR_KIND in span.attributes for span in spans)
        return (
            any(span.is_root and _is_refused(span) for span in spans)
            or (ENGINE_SPAN in names and (_DECODE_SPAN in names or not is_guided))
            or now_s - self._root_s[trace_id] > LATEST_S
        )


def _is_refused(span: Span) -> bool:
    """Return whether no generation followed: vLLM makes no span for a request that it never began."""
    status = span.attributes.get("http.response.status_code", 0)
    return isinstance(status, int) and status >= 400


def tree(spans: Sequence[Span]) -> str:
    """Return one trace as lines: the trace's id, then each span below its parent, with its milliseconds.

    Spans whose parent is not there stand at the top, the earliest first.
    """
    known = {span.span_id for span in spans}
    children: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda one: (one.start_ns, one.name, one.span_id)):
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    rows = list(_rows(children, "", "", top=True))
    width = max(len(label) for label, _ in rows)
    lines = [f"{label:<{width}}  {_milliseconds(span):>9} ms{_details(span)}" for label, span in rows]
    return "\n".join([f"trace {spans[0].trace_id}", *lines])


def _rows(
    children: Mapping[str, Sequence[Span]], parent: str, indent: str, *, top: bool = False
) -> Iterator[tuple[str, Span]]:
    siblings = children.get(parent, ())
    for number, span in enumerate(siblings, 1):
        last = number == len(siblings)
        branch, below = ("", "") if top else ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield f"{indent}{branch}{span.name}", span
        yield from _rows(children, span.span_id, indent + below)


def _milliseconds(span: Span) -> str:
    return f"{(span.end_ns - span.start_ns) / 1e6:.1f}"


def _details(span: Span) -> str:
    values = ((label, span.attributes.get(key)) for key, label in _SHOWN)
    # A count of zero says nothing (no draft where nobody drafts); rank 0 does.
    shown = [
        f"{label} {value}" for label, value in values if value or (label == "rank" and value is not None)
    ]
    drafts = [
        f"{key.removeprefix(_DRAFTS)} {value}"
        for key, value in sorted(span.attributes.items(), reverse=True)
        if key.startswith(_DRAFTS) and value
    ]
    if drafts:
        shown.append(f"drafts {', '.join(drafts)}")
    return "  " + ", ".join(shown) if shown else ""
