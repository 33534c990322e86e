"""The reference of all fields, of what engine.args and engine.env may carry, and of what goes with what.

`python -m devtools.api_reference [--check]`
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from devtools.combinations_page import COMBINATIONS_FILE, combinations_text
from guided_contract.compatibility import SUPPORTED_VLLM
from guided_operator.api import engine_args, engine_env
from guided_operator.api.crd import Schema, schema_of
from guided_operator.api.rules import RULES
from guided_operator.api.spec import GuidedModelSpec
from guided_operator.api.status import MAX_BYTES, GuidedModelStatus
from guided_operator.policy.arguments import VOCABULARIES

REFERENCE_FILE: Final = Path("docs", "api.md")
ARGUMENTS_FILE: Final = Path("docs", "arguments.md")

_HEAD: Final = """\
# GuidedModel, guidedmodel.io/v1alpha1

Made by `python -m devtools.api_reference`; do not edit.
Examples: [manifests/samples](../manifests/samples).

- `kubectl get gm`, or as part of the category `ai`; `kubectl scale gm/NAME --replicas=N` works.
- The API server validates most rules itself, also while the operator is down. What only the operator can
  check sets the condition `Compatible` to False, with a message per field, and no pods are created. So does
  a LeaderWorkerSet where its API is not installed; once it is there, the operator uses it. With the reason
  `RefusedAtStart` the pods are there, and have ended: what they refused is known only at their start.
- What stands beside the pods (PodDisruptionBudget, HorizontalPodAutoscaler, ScaledObject, PodMonitor) has the
  condition `AuxiliaryResourcesReady`: False while one is refused, or its API is not installed. The pods serve
  without it, so it is no part of `Ready`, and `kubectl wait` and GitOps tools do not wait for it.
- A status has at most {kib} KiB, however many pods and ranks there are. Patches, named grammars, logits
  processors, pods and ranks are counted, and the worst few are listed; a pod's own
  [status page](telemetry.md#health) has the others.
- Durations are text such as `90s`, `1m30s` or `500ms`; amounts are Kubernetes quantities.
- In YAML, quote `"On"` and `"Off"`: unquoted they are booleans.
- A default never changes within an API version, and setting a field to its default is no change
  ([versioning.md](versioning.md)).
- The name is immutable, and so is whether `parallelism.nodes` is above 1; every other change is rolled out.
- Pods run as user 10001 with a read-only root file system, no capabilities and no token. A claim must be
  readable by that user.
- [arguments.md](arguments.md): what `engine.args` and `engine.env` may carry. [security.md](security.md):
  what creating a GuidedModel lets one do.
"""


_ARGUMENTS_HEAD: Final = """\
# What engine.args and engine.env may carry

Made by `python -m devtools.api_reference`; do not edit.

- [Listed](#listed-for-vllm-{anchor}) for the version of vLLM is what is harmless by what vLLM says of it, or
  was run here. The operator knows the list, not the API server: a model that carries anything else gets
  `Compatible=False`, with what is wrong and what to do, and `guidedmodel validate` says the same.
- What is [not listed](#not-listed) passes where whoever runs the operator has set `limits.arguments: Any`:
  options and variables of vLLM, of its libraries, and of versions that we do not know.
  [security.md](security.md#any-arguments) says what that costs.
- [Refused](#refused-by-the-api-server) in every version is what another field sets, and what would have the
  pod break its contract: code from elsewhere, other ports, other files.

How words are written:

- Options have their full names, with dashes or underscores, and parts of them have underscores alone; `-O3`
  and the like are not allowed, nor beginnings of names, which vLLM would complete.
- A value follows its option as `--NAME=VALUE`, or as the next word. Any other word is refused: vLLM would
  take it for the name of the model. The value of an option that is not listed is written `--NAME=VALUE`.
- No word may contain a line break or another control character.
- `--async-scheduling` only while `speculative` is unset, which has a field for it.
"""


_LIMITED: Final = """\
Where whoever runs the operator has set `limits.models`, a repository or folder in {repositories}, and each
text with a `/` in {with_repositories}, must be allowed by it, listed or not; and these variables must be by
`limits.proxies`: {variables}.
"""


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def arguments_text() -> str:
    """Return what a user may say beside typed fields, as Markdown."""
    version = SUPPORTED_VLLM[-1]
    known = VOCABULARIES[version]
    variables = known.variables.union(engine_env.WAY_TO_THE_HUB)
    parts = [
        _ARGUMENTS_HEAD.format(anchor=version.replace(".", "")),
        _LIMITED.format(
            repositories=_listed(f"--{name}" for name in known.repositories),
            with_repositories=_listed(f"--{name}" for name in sorted(known.with_repositories)),
            variables=_listed(engine_env.WAY_TO_THE_HUB),
        ),
        f"## Listed for vLLM {version}\n",
        "Alone, or as --no-NAME:\n",
        _names(known.switches),
        "With a value:\n",
        _names(known.values),
        "With one or more values:\n",
        _names(known.lists),
        "With a value of JSON, or by parts, --NAME.PART=VALUE:\n",
        _names((*known.configurations, *map(_spelt, known.parts))),
        f"Variables: any name that begins with `{engine_env.OWN_PREFIX}`, for code of your own, and\n",
        " ".join(f"`{name}`" for name in sorted(variables)) + "\n",
        "## Not listed\n",
        "| option or variable | why not |\n| --- | --- |",
        *(
            f"| {_listed(f'--{name}' for name in sorted(names))} | {why} |"
            for why, names in known.unlisted.items()
        ),
        *(f"| {_listed(sorted(names))} | {why} |" for why, names in known.unlisted_variables.items()),
        "\n## Refused by the API server\n",
        "Beginnings of these options, their parts and their --no- forms are refused too.\n",
        "| option or variable | why, and what to do |\n| --- | --- |",
        *_refused("is set by the operator", engine_args.OWNED),
        *_refused("is not allowed", engine_args.FORBIDDEN),
        *(
            f"| `{pattern.replace('|', chr(92) + '|')}` | {head}: {what} |"
            for head, table in (
                ("is set by the operator", engine_env.OWNED),
                ("is not allowed", engine_env.FORBIDDEN),
            )
            for what, pattern in table.items()
        ),
        "",
    ]
    return "\n".join(parts)


def _refused(head: str, table: Mapping[str, Iterable[str]]) -> Iterator[str]:
    for what, names in table.items():
        yield f"| {_listed(f'--{name}' for name in sorted(names))} | {head}: {what} |"


def _names(options: Iterable[str]) -> str:
    return " ".join(f"`--{name}`" for name in sorted(options)) + "\n"


def _spelt(part: str) -> str:
    """Return a part as vLLM takes it: an option's name with dashes, and a field's with underscores."""
    option, _, field = part.partition(".")
    return f"{option}.{field.replace('-', '_')}"


def reference_text() -> str:
    """Return the reference as Markdown."""
    parts = [
        _HEAD.format(kib=MAX_BYTES >> 10),
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
            or_text = ", or Auto" if "Auto" in field.get("pattern", "") else ", or percentage"
            return f"integer, {bounds[0]} to {bounds[1]}{or_text * (kind == 'quantity')}"
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
    made = {
        REFERENCE_FILE: reference_text(),
        ARGUMENTS_FILE: arguments_text(),
        COMBINATIONS_FILE: combinations_text(),
    }
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
