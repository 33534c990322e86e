"""The GuidedModel as a whole."""

from typing import Final, Literal

from pydantic import Field

from guided_contract import names
from guided_operator.api.base import ApiModel, ReportedModel
from guided_operator.api.rule import Rule, cel_text, rules
from guided_operator.api.spec import GuidedModelSpec

API_VERSION = f"{names.API_GROUP}/{names.API_VERSION}"
NAME_LENGTH: Final = 40  # leaves room for what Kubernetes appends to names of pods (63 in all)
_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"  # a Service's name is stricter than a resource's


class Metadata(ReportedModel):
    """The part of ObjectMeta that we read."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default={})
    annotations: dict[str, str] = Field(default={})


class GuidedModel(ApiModel):
    """A model served by vLLM, with guided decoding on every rank; its status is told, and never read."""

    model_config = rules(
        Rule(
            "",
            f"metadata.name must have at most {NAME_LENGTH} characters, because names of pods are derived "
            "from it: lower-case letters, digits and dashes, the first a letter, because a Service gets it",
            f"self.metadata.name.size() <= {NAME_LENGTH} && self.metadata.name.matches({cel_text(_NAME)})",
        ),
        Rule(
            "spec.lora.adapters",
            "an adapter must not have the name of the model itself",
            "!has(self.spec.lora) || !self.spec.lora.adapters.exists(a, a.name == "
            "(has(self.spec.model.servedName) ? self.spec.model.servedName : self.metadata.name))",
        ),
    )

    api_version: Literal["guidedmodel.io/v1alpha1"] = Field(default="guidedmodel.io/v1alpha1")
    kind: Literal["GuidedModel"] = Field(default="GuidedModel")
    metadata: Metadata
    spec: GuidedModelSpec

    @property
    def name(self) -> str:
        """Name of the resource, and of its children."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Namespace of the resource and its children."""
        return self.metadata.namespace

    @property
    def served_name(self) -> str:
        """What clients send as "model"."""
        return self.spec.model.served_name or self.metadata.name
