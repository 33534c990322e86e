"""The reference of all fields, and of what engine.args and engine.env may carry, below docs.

`python -m devtools.api_reference [--check]`
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from guided_operator.api import engine_args, engine_env
from guided_operator.api.crd import Schema, schema_of
from guided_operator.api.rules import RULES
from guided_operator.api.spec import GuidedModelSpec
from guided_operator.api.status import GuidedModelStatus

REFERENCE_FILE: Final = Path("docs", "api.md")
ARGUMENTS_FILE: Final = Path("docs", "arguments.md")

_HEAD: Final = """\
# GuidedModel, guidedmodel.io/v1alpha1

Made by `python -m devtools.api_reference`; do not edit.
Examples: [manifests/samples](../manifests/samples).

- `kubectl get gm`, or as part of the categories `all` and `ai`; `kubectl scale gm/NAME --replicas=N` works.
- The API server validates most rules itself, also while the operator is down. What only the operator can
  check sets the condition `Compatible` to False, with a message per field, and no pods are created. So does
  an API that is not installed (LeaderWorkerSet, KEDA, PodMonitor); once it is there, the operator uses it.
- Durations are text such as `90s`, `1m30s` or `500ms`; amounts are Kubernetes quantities.
- In YAML, quote `"On"` and `"Off"`: unquoted they are booleans.
- A default never changes within an API version. Setting a field to its default is no change.
- The name is immutable, and so is whether `parallelism.nodes` is above 1; every other change is rolled out.
- Pods run as user 10001 with a read-only root file system, no capabilities and no token. A claim must be
  readable by that user.
- [arguments.md](arguments.md): what `engine.args` and `engine.env` may carry. [security.md](security.md):
  what creating a GuidedModel lets one do.
"""


_ARGUMENTS_HEAD: Final = """\
# What engine.args and engine.env may carry

Made by `python -m devtools.api_reference`; do not edit.

These are allow-lists: anything else is refused. Not allowed is what a typed field sets, what loads code by
name or path, what opens ports or connects to other servers, what reads or writes files of the caller's
choice, and what the pod does not support; `tests/support/left_out.py` has the reason for each option and
variable of vLLM.

- Options have their full names, with dashes or underscores; `-O3` and the like are not allowed.
- A value follows its option as `--NAME=VALUE`, or as the next word. Any other word is refused: vLLM would
  take it for the name of the model.
- No word may contain a line break or another control character.
"""


def arguments_text() -> str:
    """Return what a user may say beside typed fields, as Markdown."""
    typed = ", ".join(f"`{name}` (`engine.{field}`)" for name, field in engine_args.TYPED_LATER.items())
    parts = [
        _ARGUMENTS_HEAD,
        f"Only while the field is unset that says the same: {typed}, `--async-scheduling` (`speculative`).\n",
        "## Alone, or as --no-NAME\n",
        _names(engine_args.SWITCHES),
        "## With a value\n",
        _names(engine_args.VALUES),
        "## With one or more values\n",
        _names(engine_args.LISTS),
        "## With a value of JSON, or by parts: --NAME.PART=VALUE\n",
        _names((*engine_args.CONFIGURATIONS, *engine_args.PARTS)),
        "## Variables\n",
        f"Any name that begins with `{engine_env.OWN_PREFIX}`, for code of your own, and:\n",
        " ".join(f"`{name}`" for name in sorted(engine_env.ALLOWED)) + "\n",
    ]
    return "\n".join(parts)


def _names(options: Iterable[str]) -> str:
    return " ".join(f"`--{name}`" for name in sorted(options)) + "\n"


def reference_text() -> str:
    """Return the reference as Markdown."""
    parts = [
        _HEAD,
        "## spec\n",
        _table(schema_of(GuidedModelSpec), "spec", with_default=True),
        "## Rules\n",
        "Beyond types and bounds, the API server refuses:\n",
        *(
            f"- `{'.'.join(filter(None, (*rule.at, rule.field))).replace('.*', '[]')}`: {rule.message}."
            for rule in RULES
        ),
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
        return " \\| ".join(map(str, field["enum"]))
    bounds = [field.get("minimum"), field.get("maximum")]
    match field.get("type", "quantity"):
        case "integer" | "quantity" as kind if None not in bounds:
            return f"integer, {bounds[0]} to {bounds[1]}{', or percentage' * (kind == 'quantity')}"
        case "array":
            return f"list, at most {field['maxItems']}"
        case "string" if "x-kubernetes-validations" in field:
            [rule] = field["x-kubernetes-validations"]
            unit = "duration" if rule["rule"].startswith("duration(") else "amount"
            return f"{unit}, {rule['message'].removeprefix('must be ')}"
        case "object" if "properties" not in field:
            return f"map, at most {field['maxProperties']}"
        case kind:
            return str(kind)


def _default(field: Schema) -> str:
    default: Any = field.get("default")
    return f"`{json.dumps(default)}`" if default not in (None, {}) and not isinstance(default, dict) else ""


def main(options: list[str]) -> int:
    """Write the reference below the working directory, or with --check say whether it is up to date.

    Returns the exit status: 1 if --check finds a difference.
    """
    made = {REFERENCE_FILE: reference_text(), ARGUMENTS_FILE: arguments_text()}
    if options != ["--check"]:
        for file, text in made.items():
            file.write_text(text)
        return 0
    stale = [file for file, text in made.items() if not file.exists() or file.read_text() != text]
    for file in stale:
        sys.stderr.write(f"{file} is out of date; run python -m devtools.api_reference\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
