"""`python -m devtools.dashboard` writes the Grafana dashboard from a table; `--check` says if it differs.

A table, because a dashboard's JSON is nine tenths layout, and its queries are what has to be right: a test
runs each of them on real expositions (tests/contract/test_metrics.py).
"""

import json
import sys
from typing import Any, Final, NamedTuple

from devtools.golang import TOOLS

PATH: Final = TOOLS.parent / "manifests/observability/dashboard.json"
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3
# What the dashboard's variables choose; a scrape adds both labels (manifests/observability/podmonitor.yaml).
_OF: Final = 'namespace=~"$namespace",model=~"$model"'


class Panel(NamedTuple):
    """One graph: its title, its unit in Grafana's words, and each query with its legend."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    about: str = ""


def _metric(name: str, *chosen: str) -> str:
    return f"guidedmodel_{name}{{{','.join((_OF, *chosen))}}}"


def _rate(name: str, *chosen: str) -> str:
    return f"rate({_metric(name, *chosen)}[$__rate_interval])"


def _sum(by: str, expression: str) -> str:
    return f"sum by ({by}) ({expression})"


def _quantiles(name: str, by: str, *chosen: str) -> tuple[tuple[str, str], ...]:
    rate = _rate(f"{name}_bucket", *chosen)
    return tuple(
        (f"histogram_quantile({q}, {_sum(f'{by}, le', rate)})", f"p{q * 100:.0f} {{{{{by}}}}}")
        for q in (0.5, 0.99)
    )


def _ratio(by: str, over: str, under: str, legend: str) -> tuple[tuple[str, str], ...]:
    return ((f"{_sum(by, _rate(over))} / {_sum(by, _rate(under))}", legend),)


_RANK_0: Final = 'rank="0"'  # every rank of a tensor-parallel group counts the same sequences
_WHOLE: Final = 'end_reason="completed"'
_AWAITED: Final = 'end_reason!="aborted"'
ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Requests": (
        Panel("Pods that are ready", "short", ((f"sum by (model) ({_metric('ready')})", "{{model}}"),)),
        Panel(
            "Requests by status",
            "reqps",
            ((_sum("status", _rate("requests_total")), "{{status}}"),),
        ),
        Panel("Duration by kind of constraint", "s", _quantiles("request_duration_seconds", "kind")),
        Panel(
            "Errors by code",
            "reqps",
            ((_sum("error_code", _rate("requests_total", 'error_code!=""')), "{{error_code}}"),),
        ),
        Panel(
            "Guided sequences by end",
            "short",
            ((_sum("end_reason", _rate("sequences_total", _RANK_0)), "{{end_reason}}"),),
            "Of rank 0: every rank of a tensor-parallel group counts the same sequences.",
        ),
        Panel(
            "Guided answers that are whole",
            "percentunit",
            (
                (
                    " / ".join(
                        _sum("model", _rate("sequences_total", _RANK_0, ends)) for ends in (_WHOLE, _AWAITED)
                    ),
                    "{{model}}",
                ),
            ),
            "Those whose grammar came to its end, among those whose client waited for the end.",
        ),
        Panel(
            "Tokens of guided sequences", "short", ((_sum("rank", _rate("tokens_total")), "rank {{rank}}"),)
        ),
    ),
    "Grammars": (
        Panel("Prepare, by where it was found", "s", _quantiles("grammar_prepare_seconds", "cache")),
        Panel("Compile, by backend", "s", _quantiles("grammar_compile_seconds", "backend")),
        Panel("Proof, by backend", "s", _quantiles("grammar_proof_seconds", "backend")),
        Panel("Load, by rank", "s", _quantiles("grammar_load_seconds", "rank")),
        Panel(
            "Where grammars were found",
            "reqps",
            ((_sum("result", _rate("grammar_cache_lookups_total")), "{{result}}"),),
        ),
        Panel(
            "Refusals by code",
            "reqps",
            ((_sum("error_code", _rate("grammars_refused_total")), "{{error_code}}"),),
        ),
        Panel(
            "Grammars kept",
            "bytes",
            (
                (_sum("tier", _metric("grammar_cache_bytes")), "{{tier}}"),
                (f"sum({_metric('grammar_cache_leased_bytes')})", "in use"),
            ),
        ),
        Panel(
            "Grammars given up for want of room",
            "short",
            ((_sum("tier", _rate("grammar_cache_evictions_total")), "{{tier}}"),),
        ),
        Panel(
            "Disk",
            "short",
            (
                (_sum("result", _rate("grammar_disk_reads_total")), "read: {{result}}"),
                (_sum("result", _rate("grammar_disk_writes_total")), "write: {{result}}"),
            ),
        ),
    ),
    "Grammar workers": (
        Panel(
            "Workers and queue",
            "short",
            (
                (f"sum({_metric('grammar_workers_ready')})", "ready"),
                (f"sum({_metric('grammar_workers_busy')})", "busy"),
                (f"sum({_metric('grammar_compiles_queued')})", "compiles queued"),
            ),
        ),
        Panel(
            "Restarts by reason",
            "short",
            (
                (
                    _sum("reason", f"increase({_metric('grammar_worker_restarts_total')}[$__rate_interval])"),
                    "{{reason}}",
                ),
            ),
        ),
        Panel(
            "Time to a new worker",
            "s",
            _ratio("pod", "grammar_worker_fork_seconds_total", "grammar_worker_forks_total", "{{pod}}"),
        ),
        Panel(
            "Budget spent, grammars in quarantine",
            "short",
            (
                (f"sum({_metric('grammar_service_exhausted')})", "pods without restarts left"),
                (f"sum({_metric('grammars_quarantined')})", "grammars in quarantine"),
            ),
        ),
    ),
    "Decoding": (
        Panel(
            "One mask row",
            "s",
            _ratio("rank", "mask_fill_seconds_total", "mask_fills_total", "rank {{rank}}"),
        ),
        Panel("Dearest fill of a sequence", "s", _quantiles("mask_fill_max_seconds", "rank")),
        Panel(
            "Exposed wait in a step",
            "s",
            _ratio("rank", "mask_exposed_seconds_total", "decode_steps_total", "rank {{rank}}"),
            "How long sampling waited for masks: what guided decoding adds to a step.",
        ),
        Panel(
            "Draft tokens accepted",
            "percentunit",
            _ratio("rank", "drafts_accepted_total", "drafts_proposed_total", "rank {{rank}}"),
        ),
        Panel(
            "Draft tokens that the grammar refused",
            "percentunit",
            _ratio("rank", "drafts_refused_total", "drafts_proposed_total", "rank {{rank}}"),
        ),
    ),
    "Agreement and telemetry": (
        Panel(
            "Digests in which a rank differed",
            "short",
            (
                (
                    _sum("rank", f"increase({_metric('rank_desyncs_total')}[$__rate_interval])"),
                    "rank {{rank}}",
                ),
            ),
        ),
        Panel(
            "Digests",
            "short",
            (
                (f"sum({_rate('digests_compared_total')})", "compared"),
                (f"sum({_rate('digests_lost_total')})", "lost"),
            ),
        ),
        Panel(
            "Spans",
            "short",
            (
                (_sum("source", _rate("spans_exported_total")), "exported, {{source}}"),
                (_sum("reason", _rate("spans_dropped_total")), "lost: {{reason}}"),
            ),
        ),
        Panel(
            "Records lost in the pod",
            "short",
            (
                (f"sum({_rate('records_dropped_total')})", "not taken in time"),
                (f"sum({_rate('records_invalid_total')})", "no record"),
            ),
        ),
    ),
}


def text() -> str:
    """Return the dashboard as Grafana imports it."""
    return json.dumps(_dashboard(), indent=1) + "\n"


def queries() -> list[str]:
    """Return every query of the dashboard."""
    return [query for row in ROWS.values() for panel in row for query, _ in panel.queries]


def _dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        position = {"h": 1, "w": _WIDTH * _COLUMNS, "x": 0, "y": top}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "gridPos": position, "panels": []}
        )
        top += 1
        for number, panel in enumerate(row):
            x, y = number % _COLUMNS * _WIDTH, top + number // _COLUMNS * _HEIGHT
            panels.append(_panel(len(panels) + 1, panel, {"h": _HEIGHT, "w": _WIDTH, "x": x, "y": y}))
        top += -(-len(row) // _COLUMNS) * _HEIGHT
    return {
        "uid": "guidedmodel",
        "title": "GuidedModel",
        "tags": ["guidedmodel"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_DATASOURCE, *map(_variable, ("namespace", "model"))]},
        "panels": panels,
    }


_DATASOURCE: Final = {
    "name": "datasource",
    "type": "datasource",
    "query": "prometheus",
    "label": "Prometheus",
}
_FROM: Final = {"type": "prometheus", "uid": "${datasource}"}


def _variable(label: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": _FROM,
        "query": f"label_values(guidedmodel_ready, {label})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel, position: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _FROM, "expr": query, "legendFormat": legend}
        for index, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _FROM,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def main() -> None:
    """Write, or check."""
    if "--check" not in sys.argv[1:]:
        PATH.write_text(text())
    elif not PATH.exists() or PATH.read_text() != text():
        sys.exit(f"dashboard: {PATH.relative_to(TOOLS.parent)} is outdated: run `make generate`")


if __name__ == "__main__":
    main()
