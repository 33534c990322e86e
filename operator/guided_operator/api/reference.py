"""The reference of all fields, from the CRD's schema: `python -m guided_operator.api.reference [--check]`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from guided_operator.api.crd import Schema, schema_of
from guided_operator.api.rules import RULES
from guided_operator.api.spec import GuidedModelSpec
from guided_operator.api.status import GuidedModelStatus

REFERENCE_FILE: Final = Path("docs", "api.md")

_HEAD: Final = """\
# GuidedModel, guidedmodel.io/v1alpha1

Made by `python -m guided_operator.api.reference`; do not edit.
Examples: [manifests/samples](../manifests/samples).

- `kubectl get gm`, or as part of the categories `all` and `ai`; `kubectl scale gm/NAME --replicas=N` works.
- What the API server can decide is refused there, also while the operator is down. What only the operator can
  tell sets the condition `Compatible` to False, with a reason per field, and no pods are made.
- Durations are text such as `90s`, `1m30s` or `500ms`; amounts are Kubernetes quantities.
- In YAML, write `"On"` and `"Off"` with quotes: without them they are booleans.
- A default never changes within an API version. Nothing is immutable but the name: every change is rolled
  out, and a field written out at its default is no change.
- The pod: user 10001, read-only root, no capabilities, no token. A claim's content must be readable by all.
"""


def reference_text() -> str:
    """Return the reference as Markdown."""
    parts = [
        _HEAD,
        "## spec\n",
        _table(schema_of(GuidedModelSpec), "spec", with_default=True),
        "## Rules\n",
        "Beyond types and bounds, the API server refuses:\n",
        *(f"- `{'.'.join((*rule.at, rule.field)).replace('.*', '[]')}`: {rule.message}." for rule in RULES),
        "\n## status\n",
        _table(schema_of(GuidedModelStatus), "status", with_default=False),
    ]
    return "\n".join(parts)


def _table(schema: Schema, root: str, *, with_default: bool) -> str:
    head = ["field", "type", *(["default"] if with_default else []), "meaning"]
    rows = [head, ["---"] * len(head)]
    for path, field, required in _fields(schema, ""):
        default = ["**required**" if required else _default(field)] if with_default else []
        rows.append([f"`{path}`", _type(field), *default, field["description"].replace("|", "\\|")])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"Paths below `{root}`.\n\n{lines}\n"


def _fields(schema: Schema, prefix: str) -> Iterator[tuple[str, Schema, bool]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{prefix}{name}", field, name in schema.get("required", [])
        yield from _fields(field, f"{prefix}{name}.")
        yield from _fields(field.get("items", {}), f"{prefix}{name}[].")


def _type(field: Schema) -> str:
    if "enum" in field:
        return " \\| ".join(field["enum"])
    bounds = [field.get("minimum"), field.get("maximum")]
    match field.get("type", "quantity"):
        case "integer" if None not in bounds:
            return f"integer, {bounds[0]} to {bounds[1]}"
        case "array":
            return f"list, at most {field['maxItems']}"
        case "string" if "x-kubernetes-validations" in field:
            return f"duration, {field['x-kubernetes-validations'][0]['message'].removeprefix('must be ')}"
        case "object" if "properties" not in field:
            return f"map, at most {field['maxProperties']}"
        case kind:
            return str(kind)


def _default(field: Schema) -> str:
    default: Any = field.get("default")
    return f"`{json.dumps(default)}`" if default not in (None, {}) and not isinstance(default, dict) else ""


def main(arguments: list[str]) -> int:
    """Write the reference below the working directory, or with --check say whether it is up to date.

    Returns the exit status: 1 if --check finds a difference.
    """
    if arguments == ["--check"]:
        current = REFERENCE_FILE.read_text() if REFERENCE_FILE.exists() else ""
        if current == reference_text():
            return 0
        sys.stderr.write(f"{REFERENCE_FILE} is out of date; run python -m guided_operator.api.reference\n")
        return 1
    REFERENCE_FILE.write_text(reference_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
