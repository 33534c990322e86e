"""The GuidedModel as a whole."""

from typing import Literal

from pydantic import Field

from guided_contract import names
from guided_operator.api.base import ApiModel, ReportedModel
from guided_operator.api.spec import GuidedModelSpec

API_VERSION = f"{names.API_GROUP}/{names.API_VERSION}"


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
