"""The CustomResourceDefinition, made from the models: `python -m guided_operator.api.crd [--check]`.

pydantic's JSON schema is not what an API server takes as a structural schema; each step below removes one
difference. Without --check the file below manifests/crd is written, with it compared.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from guided_contract import names
from guided_operator.api.base import ApiModel, ReportedModel
from guided_operator.api.spec import GuidedModel, GuidedModelSpec
from guided_operator.api.status import GuidedModelStatus

Schema = dict[str, Any]
CRD_NAME: Final = f"{names.PLURAL}.{names.API_GROUP}"
CRD_FILE: Final = Path("manifests", "crd", f"{CRD_NAME}.yaml")

_COLUMNS: Final = (  # name, type, path, priority: 1 is shown by -o wide
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Desired", "integer", ".spec.replicas", 0),
    ("Up", "integer", ".status.readyReplicas", 0),
    ("Guided", "string", '.status.conditions[?(@.type=="GuidedDecoding")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Model", "string", ".spec.model.uri", 1),
    ("Placement", "string", ".spec.guidedDecoding.placement", 1),
    ("TP", "integer", ".spec.parallelism.tensor", 1),
    ("Missing", "integer", ".status.ranks.missing", 1),
    ("URL", "string", ".status.url", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
# As kstatus wants it: without, tools that wait would take a new resource for one that is as it should be.
_UNSEEN: Final = {"observedGeneration": -1}
# What a structural schema has no word for.
_DROPPED: Final = ("title", "$defs", "$ref")


class _Structural(GenerateJsonSchema):
    """pydantic's schema of what users write, with the defaults of a structural schema."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Make of `X | None` an optional X: absent, never null."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Drop defaults that are the same as absent."""
        made = super().default_schema(schema)
        if self.get_default_value(schema) in (None, "", [], {}):
            made.pop("default", None)
        return made

    def encode_default(self, dft: Any) -> Any:
        """Leave to the parts of an object what they default to."""
        if isinstance(dft, ApiModel):
            return dft.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return super().encode_default(dft)


class _Reported(_Structural):
    """The schema of a status: only its writer says what it holds."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def schema_of(model: type[ApiModel]) -> Schema:
    """Return a model's structural schema."""
    kind = _Reported if issubclass(model, ReportedModel) else _Structural
    raw = model.model_json_schema(by_alias=True, schema_generator=kind)
    return _structural(raw, raw.get("$defs", {}))


def _structural(node: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in node:  # what stands beside the reference wins
        node = {**definitions[node["$ref"].rpartition("/")[2]], **node}
    node = {key: value for key, value in node.items() if key not in _DROPPED}
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if "properties" in node:
        node.pop("additionalProperties", None)  # pruning does it, and both together are refused
        node["properties"] = {
            name: _structural(child, definitions) for name, child in node["properties"].items()
        }
    elif node.get("additionalProperties") is True:
        node.pop("additionalProperties")
        node["x-kubernetes-preserve-unknown-fields"] = True
    for part in ("additionalProperties", "items"):
        if part in node:
            node[part] = _structural(node[part], definitions)
    return node


def root_schema() -> Schema:
    """Return the schema of a GuidedModel, with its rules."""
    return {
        "type": "object",
        "description": "A model served by vLLM, with guided decoding on every rank.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": schema_of(GuidedModelSpec),
            "status": {**schema_of(GuidedModelStatus), "default": _UNSEEN},
        },
        "x-kubernetes-validations": GuidedModel.model_json_schema()["x-kubernetes-validations"],
    }


def rules_of(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield each rule of a schema, with the field that it is about."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"{path}{rule.get('fieldPath', '')}".removeprefix(".") or "metadata", rule
    for name, field in schema.get("properties", {}).items():
        yield from rules_of(field, f"{path}.{name}")
        yield from rules_of(field.get("items", {}), f"{path}.{name}[]")


def custom_resource_definition() -> Schema:
    """Return the CRD as the API server takes it."""
    version = {
        "name": names.API_VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})
            for name, kind, path, priority in _COLUMNS
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": names.API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": ["gm"],
                "categories": ["ai"],
            },
            "versions": [version],
        },
    }


def crd_text() -> str:
    """Return the CRD's file."""
    text: str = yaml.safe_dump(custom_resource_definition(), sort_keys=False, width=120)
    return f"# Made by `python -m guided_operator.api.crd`; do not edit.\n{text}"


def main(arguments: list[str]) -> int:
    """Write the CRD below the working directory, or with --check say whether it is up to date.

    Returns the exit status: 1 if --check finds a difference.
    """
    if arguments == ["--check"]:
        current = CRD_FILE.read_text() if CRD_FILE.exists() else ""
        if current == crd_text():
            return 0
        sys.stderr.write(f"{CRD_FILE} is out of date; run python -m guided_operator.api.crd\n")
        return 1
    CRD_FILE.parent.mkdir(parents=True, exist_ok=True)
    CRD_FILE.write_text(crd_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
