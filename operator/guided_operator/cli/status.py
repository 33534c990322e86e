"""`guidedmodel status`, and `kubectl gm status`: how models are, and what to do next."""

import datetime as dt
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
import yaml

from guided_contract import names
from guided_operator.cli import advice

Object = Mapping[str, Any]
_KIND: Final = f"{names.PLURAL}.{names.API_VERSION}.{names.API_GROUP}"
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"))


def main(arguments: Sequence[str]) -> int:
    """Print how the models are that `kubectl get` has for these arguments.

    Return 0 if all are ready, 1 if one is not, 2 if that cannot be told; kubectl itself says why.
    """
    command = ("kubectl", "get", _KIND, *arguments, "--output=json", "--watch=false")
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603 - the user's own
        found = json.loads(done.stdout or "{}")
    except (OSError, ValueError) as error:
        click.echo(f"guidedmodel: kubectl is needed to read the cluster: {error}", err=True)
        return 2
    models = found.get("items", [found] if found else [])
    click.echo("\n\n".join(text(model, dt.datetime.now(dt.UTC)) for model in models), nl=bool(models))
    if done.returncode:
        return 2
    if not models:
        click.echo("there are no GuidedModels here", err=True)
    return 0 if all(map(is_ready, models)) else 1


def is_ready(model: Object) -> bool:
    """Say whether a model is Ready, and that of the spec as it is now."""
    found = _ready(model)
    generation = model["metadata"].get("generation", 0)
    return found.get("status") == "True" and bool(found.get("observedGeneration", 0) >= generation)


def _ready(model: Object) -> Object:
    conditions = (model.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "Ready"), {})


def text(model: Object, now: dt.datetime) -> str:
    """Return what people read: conditions as a table, the rest of the status as it is, what to do next."""
    metadata, status = model["metadata"], dict(model.get("status") or {})
    rows = [
        (
            *(each.get(field, "") for field in ("type", "status", "reason")),
            _age(each.get("lastTransitionTime"), now),
            _plain(each.get("message", "")),
        )
        for each in status.pop("conditions", None) or ()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"GuidedModel {metadata['namespace']}/{metadata['name']}: {_summary(model)}"]
    for row in rows:
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {cells}".rstrip())
    if status:
        rest = yaml.safe_dump(status, sort_keys=False, allow_unicode=True, width=110)
        lines += ["status:", *(f"  {line}" for line in rest.splitlines())]
    lines += ["next:", *(f"  {step}" for step in advice.steps(model) or ["nothing to do"])]
    return "\n".join(lines)


def _summary(model: Object) -> str:
    if "deletionTimestamp" in model["metadata"]:
        return "being deleted"
    return "ready" if is_ready(model) else f"not ready, {_ready(model).get('reason', '')}".rstrip(", ")


def _age(stamp: Any, now: dt.datetime) -> str:
    """Return how long ago a time was, in the largest unit that is not 0."""
    try:
        past_s = max(int((now - dt.datetime.fromisoformat(stamp)).total_seconds()), 0)
    except (TypeError, ValueError):
        return "?"
    return next((f"{past_s // unit_s}{unit}" for unit_s, unit in _UNITS if past_s >= unit_s), f"{past_s}s")


def _plain(text: str) -> str:
    """Return a text without its ends of lines, and without what a terminal would obey."""
    return "".join(filter(str.isprintable, " ".join(text.split())))
