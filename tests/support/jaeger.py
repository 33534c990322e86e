"""Traces as a Jaeger shows them."""

import json
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """One span; `parents` are its parent's id, if it has one, `links` the ids of spans of any trace.

    `events` are by name.
    """

    span_id: str
    name: str
    parents: tuple[str, ...]
    tags: dict[str, Any] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    events: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace."""

    trace_id: str
    spans: tuple[Span, ...]

    @property
    def root(self) -> Span:
        """The one span without a parent."""
        [root] = [span for span in self.spans if not span.parents]
        return root

    def named(self, name: str) -> list[Span]:
        """Return the spans of a name."""
        return [span for span in self.spans if span.name == name]

    def is_below(self, span: Span, above: Span) -> bool:
        """Return whether `above` is the parent, or a parent's parent, of `span`."""
        known = {one.span_id: one for one in self.spans}
        return any(
            parent == above.span_id or (parent in known and self.is_below(known[parent], above))
            for parent in span.parents
        )


def traces(url: str, service: str, since_s: float) -> list[Trace]:
    """Return a service's traces that began after a moment (seconds of the epoch)."""
    query = {
        "service": service,
        "start": int(since_s * 1e6),
        "end": int((time.time() + 60) * 1e6),
        "limit": 1500,
    }
    with urllib.request.urlopen(f"{url}/api/traces?{urllib.parse.urlencode(query)}", timeout=20) as answer:
        found = json.loads(answer.read())["data"] or []
    return [_trace(one) for one in found]


def _trace(data: dict[str, Any]) -> Trace:
    return Trace(data["traceID"], tuple(_span(one) for one in data["spans"]))


def _span(data: dict[str, Any]) -> Span:
    refers = [(reference["refType"], reference["spanID"]) for reference in data["references"]]
    events = [_tags(log["fields"]) for log in data["logs"]]
    return Span(
        data["spanID"],
        data["operationName"],
        tuple(span_id for kind, span_id in refers if kind == "CHILD_OF"),
        _tags(data["tags"]),
        tuple(span_id for kind, span_id in refers if kind != "CHILD_OF"),
        {fields["event"]: fields for fields in events if "event" in fields},
    )


def _tags(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {item["key"]: item["value"] for item in items}
