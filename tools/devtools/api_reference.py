"""The CRD, the reference of all fields, of reserved arguments and variables, and of what goes with what.

`python -m devtools.api_reference [--check]`
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from devtools.combinations_page import COMBINATIONS_FILE, combinations_text
from devtools.crd import CRD_FILE, crd_text
from guided_operator.api.base import BYTES_PATTERN, DURATION_PATTERN
from guided_operator.api.crd import Schema, schema_of
from guided_operator.api.spec import GuidedModelSpec
from guided_operator.api.status import MAX_BYTES, GuidedModelStatus
from guided_operator.api.words import WAY_TO_THE_HUB
from guided_operator.policy import reserved_options, reserved_variables
from guided_operator.policy.arguments import REPOSITORIES, WITH_REPOSITORIES

_UNITS: Final = {DURATION_PATTERN: "duration", BYTES_PATTERN: "amount"}
_LONG: Final = 80  # letters of a description that is not repeated
_INT32: Final = (1 << 31) - 1
REFERENCE_FILE: Final = Path("docs", "api.md")

_HEAD: Final = """\
# GuidedModel, guidedmodel.io/v1alpha1

Made by `python -m devtools.api_reference`; do not edit. [Samples](../manifests/samples);
[choosing settings](settings.md).

- `kubectl get gm`, or `kubectl get ai`; `kubectl scale gm/NAME --replicas=N`.
- The API server rejects wrong types and patterns, and mutually exclusive fields. The operator checks the
  rest: bounds of durations and amounts, [combinations](compatibility.md), limits of the installation, a
  missing LeaderWorkerSet API and [reserved names](#reserved-arguments-and-variables). If a check fails, the
  condition `Compatible` is False with a message per field, and no pods are created. Reason `RefusedAtStart`:
  vLLM refused the settings when the pods started.
- `AuxiliaryResourcesReady` covers PodDisruptionBudget and PodMonitor, and does not affect `Ready`.
- The status, at most {kib} KiB, only counts grammars, processors and ranks; messages of conditions and a
  pod's [status page](telemetry.md#health) have details.
- Durations are text such as `90s`, `1m30s` or `500ms`; amounts are Kubernetes quantities. In YAML, quote
  `"On"` and `"Off"`.
- A default never changes within a version ([versions](versioning.md)). A field without a default is unset.
- `metadata.name` has at most 40 lower-case letters, digits and dashes, and begins with a letter.
- Changes of the spec are rolled out, unless a field says otherwise. A change to or from
  `parallelism.nodes: 1` is rejected.
- Pods run as user 10001 with a read-only root file system, no capabilities and no ServiceAccount token. That
  user must be able to read PersistentVolumeClaims ([security](security.md)).
- `SecretKeyRef` and `configMapKeyRef` have `name` and `key`.
"""


_RESERVED: Final = """\
## Reserved arguments and variables

`engine.args`, such as `[--max-model-len=8192, --gpu-memory-utilization=0.92]`, and `engine.env` accept
everything that vLLM accepts, except the names below, which set `Compatible` to False. What vLLM refuses at
start is `RefusedAtStart`, with vLLM's message. The installation can restrict more with `limits.arguments`
([security](security.md#arguments)).

- Write options with their full names, with dashes or underscores. Abbreviations of reserved names, their
  `no-` forms and `-O3` are refused, too.
- With `speculative`, set `speculative.asyncScheduling` instead of `--async-scheduling`.
- Variables that begin with `APP_` are free.
- `limits.models` of the installation, if set, must also allow a repository or folder in {repositories}, and
  each text with a `/` in {with_repositories}. Then these variables need `limits.proxies: Allow`: {variables}.
"""
_LISTS: Final = (
    ("Set by the operator:", reserved_options.OWNED, reserved_variables.OWNED),
    ("Not allowed:", reserved_options.FORBIDDEN, reserved_variables.FORBIDDEN),
)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _reserved() -> Iterator[str]:
    """Yield what a user may not say beside typed fields, as lines of Markdown."""
    yield _RESERVED.format(
        repositories=_listed(f"--{name}" for name in REPOSITORIES),
        with_repositories=_listed(f"--{name}" for name in WITH_REPOSITORIES),
        variables=_listed(WAY_TO_THE_HUB),
    )
    for verdict, options, variables in _LISTS:
        yield f"{verdict}\n"
        for what, names in options.items():
            yield f"- {_listed(f'--{name}' for name in sorted(names))}: {what}"
        for what, pattern in variables.items():
            yield f"- `{pattern}`: {what}"
        yield ""


def reference_text() -> str:
    """Return the reference as Markdown."""
    parts = [
        _HEAD.format(kib=MAX_BYTES >> 10),
        "## spec\n",
        _listing(schema_of(GuidedModelSpec), "spec"),
        *_reserved(),
        "## status\n",
        _listing(schema_of(GuidedModelStatus), "status"),
    ]
    return "\n".join(parts)


def _listing(schema: Schema, root: str) -> str:
    lines = [f"Paths below `{root}`.\n"]
    described: dict[str, str] = {}
    for path, field, required in _fields(schema, ""):
        kind = f"{_type(field)}, **required**" if required and root == "spec" else _type(field)
        meaning = _meaning(field)
        first = described.setdefault(meaning, path)
        if first != path and len(meaning) > _LONG:
            meaning = f"See `{first}`."
        lines.append(f"- `{path}` ({kind}{_default(field)}): {meaning}")
    return "\n".join([*lines, ""])


def _meaning(field: Schema) -> str:
    """Return the description, without a default that the schema has or that there is none."""
    text: str = field["description"]
    default = field.get("default")
    known = ["none", *([str(default), json.dumps(default)] if default is not None else [])]
    for value in known:
        text = re.sub(rf" ?Default: {re.escape(value)}\.(?=\s|$)", "", text, flags=re.IGNORECASE)
    return text


def _fields(schema: Schema, prefix: str) -> Iterator[tuple[str, Schema, bool]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{prefix}{name}", field, name in schema.get("required", [])
        if not name.endswith(
            ("KeyRef", "conditions")
        ):  # name and key; a condition as everywhere in Kubernetes
            yield from _fields(field, f"{prefix}{name}.")
            yield from _fields(field.get("items", {}), f"{prefix}{name}[].")


def _type(field: Schema) -> str:
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    bounds = [field.get("minimum"), field.get("maximum")]
    match field.get("type", "quantity"):
        case "integer" | "quantity" as kind if None not in bounds and bounds[1] != _INT32:
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
    is_shown = default not in (None, {}) and not isinstance(default, dict)
    return f"; default `{json.dumps(default)}`" if is_shown else ""


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
