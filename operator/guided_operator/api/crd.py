"""What an API server checks of a GuidedModel: its structural schema, made from the models.

pydantic's JSON schema is not quite that; each step below removes one difference.
"""

from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from guided_operator.api.base import ApiModel, ReportedModel
from guided_operator.api.spec import GuidedModel, GuidedModelSpec
from guided_operator.api.status import GuidedModelStatus

Schema = dict[str, Any]
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
