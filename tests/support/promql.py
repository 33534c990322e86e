"""Prometheus' own query engine on expositions that a test has, without a server."""

import functools
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from devtools import golang

TIMEOUT_S = 60
# What a scrape adds, as manifests/observability/podmonitor.yaml asks for.
TARGET = {"namespace": "models", "pod": "tiny-0", "model": "tiny", "job": "guidedmodel"}


@dataclass(frozen=True, slots=True)
class Scrape:
    """A page of /metrics at a moment, in seconds.

    `labels` are the target's, or with `relabel` those that it is discovered with. `state`: "down" where it
    did not answer, "gone" where it is no longer there.
    """

    at: float
    body: str
    content_type: str = "text/plain; version=0.0.4"
    labels: Mapping[str, str] = field(default_factory=lambda: TARGET)
    relabel: Sequence[Mapping[str, Any]] = ()
    honor_labels: bool = False
    state: Literal["", "down", "gone"] = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a query: label sets with values, and what it reads: metrics, each with its labels."""

    query: str
    series: list[tuple[dict[str, str], float]]
    reads: list[tuple[str, list[str]]]


def as_sent(query: str, step_s: float) -> str:
    """Return a dashboard's query as Grafana sends it with everything chosen, for scrapes each `step_s`."""
    chosen = {"$__rate_interval": f"{2 * step_s:.0f}s", "$namespace": ".*", "$model": ".*"}
    return functools.reduce(lambda text, name: text.replace(name, chosen[name]), chosen, query)


def evaluate(scrapes: Sequence[Scrape], queries: Sequence[str], at: float) -> list[Answer]:
    """Return each query's answer at a moment; AssertionError for one that is wrong or draws a warning."""
    told = _ask({"scrapes": _plain(scrapes), "queries": list(queries), "at": at})
    return [_answer(query, one) for query, one in zip(queries, told, strict=True)]


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that began to fire, in seconds."""

    at: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def name(self) -> str:
        """The alert's name."""
        return self.labels["alertname"]


def alerts(
    scrapes: Sequence[Scrape], groups: Sequence[Mapping[str, Any]], until: float, step: float
) -> list[Firing]:
    """Return what fires when groups of a PrometheusRule are evaluated every `step` seconds."""
    asked = {"scrapes": _plain(scrapes), "groups": list(groups), "at": until, "step": step}
    return [Firing(**one) for one in _ask(asked, "alerts")]


def _plain(scrapes: Sequence[Scrape]) -> list[dict[str, Any]]:
    return [{name: getattr(one, name) for name in Scrape.__slots__} for one in scrapes]


def _ask(asked: Mapping[str, Any], *arguments: str) -> list[Any]:
    done = subprocess.run(
        [golang.promql() / "promql", *arguments],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: list[Any] = json.loads(done.stdout)
    return told


def _answer(query: str, told: Mapping[str, Any]) -> Answer:
    assert not told["error"], f"{query}: {told['error']}"
    assert not told["warnings"], f"{query}: {told['warnings']}"
    series = [(one["labels"], float(one["value"])) for one in told["series"] or ()]
    return Answer(query, series, [(one["metric"], one["labels"]) for one in told["selectors"]])
