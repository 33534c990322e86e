"""Prometheus' own query engine on expositions that a test has, without a server."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from devtools import golang

TIMEOUT_S = 60
# What a scrape adds, as manifests/observability/podmonitor.yaml asks for.
TARGET = {"namespace": "models", "pod": "tiny-0", "model": "tiny", "job": "guidedmodel"}


@dataclass(frozen=True, slots=True)
class Scrape:
    """A page of /metrics at a moment, in seconds."""

    at: float
    body: str
    content_type: str = "text/plain; version=0.0.4"
    labels: Mapping[str, str] = field(default_factory=lambda: TARGET)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a query: label sets with values, and what it reads: metrics, each with its labels."""

    query: str
    series: list[tuple[dict[str, str], float]]
    reads: list[tuple[str, list[str]]]


def evaluate(scrapes: Sequence[Scrape], queries: Sequence[str], at: float) -> list[Answer]:
    """Return each query's answer at a moment; AssertionError for one that is wrong or draws a warning."""
    asked = {
        "scrapes": [
            {"at": one.at, "labels": dict(one.labels), "content_type": one.content_type, "body": one.body}
            for one in scrapes
        ],
        "queries": list(queries),
        "at": at,
    }
    done = subprocess.run(
        [golang.promql() / "promql"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [_answer(query, one) for query, one in zip(queries, json.loads(done.stdout), strict=True)]


def _answer(query: str, told: Mapping[str, Any]) -> Answer:
    assert not told["error"], f"{query}: {told['error']}"
    assert not told["warnings"], f"{query}: {told['warnings']}"
    series = [(one["labels"], float(one["value"])) for one in told["series"] or ()]
    return Answer(query, series, [(one["metric"], one["labels"]) for one in told["selectors"]])
