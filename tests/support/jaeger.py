"""Traces as a Jaeger shows them."""

import json
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """One span; `parents` are its parent's id, if it has one."""

    span_id: str
    name: str
    parents: tuple[str, ...]
    tags: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace."""

    spans: tuple[Span, ...]

    @property
    def roots(self) -> list[Span]:
        """Return the spans without a parent that is here: one, where nothing was lost."""
        known = {span.span_id for span in self.spans}
        return [span for span in self.spans if known.isdisjoint(span.parents)]

    def named(self, name: str) -> list[Span]:
        """Return the spans of a name."""
        return [span for span in self.spans if span.name == name]


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
    return [Trace(tuple(map(_span, one["spans"]))) for one in found]


def _span(data: dict[str, Any]) -> Span:
    parents = tuple(one["spanID"] for one in data["references"] if one["refType"] == "CHILD_OF")
    tags = {tag["key"]: tag["value"] for tag in data["tags"]}
    return Span(data["spanID"], data["operationName"], parents, tags)
