"""The CRD, the reference of all fields, of reserved arguments and variables, and of what goes with what.

`python -m devtools.api_reference [--check]`
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from devtools.combinations_page import COMBINATIONS_FILE, combinations_text
from devtools.crd import CRD_FILE, crd_text
from guided_operator.api.base import BYTES_PATTERN, DURATION_PATTERN
from guided_operator.api.crd import Schema, root_schema, schema_of
from guided_operator.api.spec import GuidedModelSpec
from guided_operator.api.status import MAX_BYTES, GuidedModelStatus
from guided_operator.api.words import WAY_TO_THE_HUB
from guided_operator.policy import reserved_options, reserved_variables
from guided_operator.policy.arguments import REPOSITORIES, WITH_REPOSITORIES

_UNITS: Final = {DURATION_PATTERN: "duration", BYTES_PATTERN: "amount"}
REFERENCE_FILE: Final = Path("docs", "api.md")

_HEAD: Final = """\
# GuidedModel, guidedmodel.io/v1alpha1

Made by `python -m devtools.api_reference`; do not edit.
Examples: [manifests/samples](../manifests/samples).

- `kubectl get gm`, or as part of the category `ai`; `kubectl scale gm/NAME --replicas=N` works.
- The API server refuses what breaks types, patterns and [rules](#rules), also while the operator is down.
  What else cannot run (bounds of durations and amounts, [combinations](compatibility.md), resources, reserved
  names) sets the condition `Compatible` to False, with a message per field, and no pods are created. So does
  a LeaderWorkerSet where its API is not installed; once it is there, the operator uses it. With the reason
  `RefusedAtStart` the pods are there, and have ended: what they refused is known only at their start.
- What stands beside the pods (PodDisruptionBudget, PodMonitor) has the
  condition `AuxiliaryResourcesReady`: False while one is refused, or its API is not installed. The pods serve
  without it, so it is no part of `Ready`, and `kubectl wait` and GitOps tools do not wait for it.
- A status has at most {kib} KiB, and most have 2, however many pods and ranks there are. Named grammars,
  logits processors and ranks are counted; what is wrong with one of them, or with a pod, is in the message of
  the condition that is not True. A pod's own [status page](telemetry.md#health) has the rest.
- Durations are text such as `90s`, `1m30s` or `500ms`; amounts are Kubernetes quantities.
- In YAML, quote `"On"` and `"Off"`: unquoted they are booleans.
- A default never changes within an API version, and setting a field to its default is no change
  ([versioning.md](versioning.md)).
- The name is immutable, and so is whether `parallelism.nodes` is above 1; every other change is rolled out.
- Pods run as user 10001 with a read-only root file system, no capabilities and no token. A claim must be
  readable by that user.
- [Reserved](#reserved-arguments-and-variables): what `engine.args` and `engine.env` may not carry.
  [security.md](security.md): what creating a GuidedModel lets one do.
"""


_RESERVED: Final = """\
## Reserved arguments and variables

`engine.args` and `engine.env` may hold whatever vLLM knows, but for these: what another field sets, and what
would have the pod break its contract. A model that carries one gets `Compatible=False`, and
`guidedmodel validate` says the same. What vLLM itself does not take, it refuses as it starts: `Compatible` is
False with the reason `RefusedAtStart`, in vLLM's words. Whoever runs the operator may allow and deny more by
`limits.arguments` ([security.md](security.md#arguments)).

- Options have their full names, with dashes or underscores; `-O3` and the like are refused, and so is what
  a reserved name begins with, which vLLM would complete: as such, as a part of it, and with no-.
- With `speculative` set, `--async-scheduling` is `speculative.asyncScheduling`.
- Variables that begin with `APP_` are free, for code of your own.
- With `limits.models`, a repository or folder in {repositories}, and each text with a `/` in
  {with_repositories}, must be allowed by it; and these variables by `limits.proxies`: {variables}.

| option or variable | why, and what to do |
| --- | --- |"""


def rules_of(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield each rule of a schema, with the field that it is about."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"{path}{rule.get('fieldPath', '')}".removeprefix(".") or "metadata", rule
    for name, field in schema.get("properties", {}).items():
        yield from rules_of(field, f"{path}.{name}")
        yield from rules_of(field.get("items", {}), f"{path}.{name}[]")


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _reserved() -> Iterator[str]:
    """Yield what a user may not say beside typed fields, as lines of Markdown."""
    yield _RESERVED.format(
        repositories=_listed(f"--{name}" for name in REPOSITORIES),
        with_repositories=_listed(f"--{name}" for name in WITH_REPOSITORIES),
        variables=_listed(WAY_TO_THE_HUB),
    )
    for head, options, variables in (
        ("is set by the operator", reserved_options.OWNED, reserved_variables.OWNED),
        ("is not allowed", reserved_options.FORBIDDEN, reserved_variables.FORBIDDEN),
    ):
        for what, names in options.items():
            yield f"| {_listed(f'--{name}' for name in sorted(names))} | {head}: {what} |"
        for what, pattern in variables.items():
            yield f"| `{pattern.replace('|', chr(92) + '|')}` | {head}: {what} |"
    yield ""


def reference_text() -> str:
    """Return the reference as Markdown."""
    parts = [
        _HEAD.format(kib=MAX_BYTES >> 10),
        "## spec\n",
        _table(schema_of(GuidedModelSpec), "spec", with_default=True),
        "## Rules\n",
        "Beyond types and patterns, the API server refuses by CEL, and `guidedmodel` by the same:\n",
        *(f"- `{field}`: {rule['message']}." for field, rule in rules_of(root_schema())),
        "",
        *_reserved(),
        "## status\n",
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
            or_text = ", or Auto" if "Auto" in field.get("pattern", "") else ", or percentage"
            return f"integer, {bounds[0]} to {bounds[1]}{or_text * (kind == 'quantity')}"
        case "array":
            return f"list, at most {field['maxItems']}"
        case "string" if field.get("pattern") in _UNITS:
            return _UNITS[field["pattern"]]
        case "object" if "additionalProperties" in field:
            return f"map, at most {field['maxProperties']}"
        case kind:
            return str(kind)


def _default(field: Schema) -> str:
    default: Any = field.get("default")
    return f"`{json.dumps(default)}`" if default not in (None, {}) and not isinstance(default, dict) else ""


def main(options: list[str]) -> int:
    """Write the files below the working directory, or with --check say whether they are up to date.

    Returns the exit status: 1 if --check finds a difference.
    """
    made = {
        CRD_FILE: crd_text(),
        REFERENCE_FILE: reference_text(),
        COMBINATIONS_FILE: combinations_text(),
    }
    if options != ["--check"]:
        for file, text in made.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return 0
    stale = [file for file, text in made.items() if not file.exists() or file.read_text() != text]
    for file in stale:
        sys.stderr.write(f"{file} is out of date; run python -m devtools.api_reference\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
