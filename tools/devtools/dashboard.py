"""`python -m devtools.dashboard` writes the Grafana dashboard; `--check` says if it differs."""

import json
import sys
from typing import Any, Final

from devtools.dashboard_rows import ROWS, Panel
from devtools.golang import TOOLS

PATH: Final = TOOLS.parent / "manifests/observability/dashboard.json"
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3


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
