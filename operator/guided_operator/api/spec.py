"""A GuidedModel: what a user asks for. Each description says unit, default and reason."""

from typing import Annotated, Final, Literal

from pydantic import Field

from guided_contract import names
from guided_contract.choices import MOST_PROCESSORS
from guided_operator.api.base import ApiModel, ReportedModel
from guided_operator.api.engine import Engine
from guided_operator.api.guided_decoding import GuidedDecoding
from guided_operator.api.logits_processors import LogitsProcessor
from guided_operator.api.model import Lora, Model
from guided_operator.api.network_policy import NetworkPolicy
from guided_operator.api.parallelism import Parallelism
from guided_operator.api.pod import Pod
from guided_operator.api.resources import Resources, Sidecar, Storage
from guided_operator.api.rollout import Drain, Probes, Rollout
from guided_operator.api.rule import Rule, cel_text, rules
from guided_operator.api.speculative import Speculative
from guided_operator.api.telemetry import Telemetry

API_VERSION = f"{names.API_GROUP}/{names.API_VERSION}"
NAME_LENGTH: Final = 40  # leaves room for what Kubernetes appends to names of pods (63 in all)
_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"  # a Service's name is stricter than a resource's
_NODES: Final = "(has({0}.parallelism) && has({0}.parallelism.nodes) && {0}.parallelism.nodes > 1)"


class GuidedModelSpec(ApiModel):
    """A model served by vLLM, with guided decoding on every rank."""

    model_config = rules(
        Rule(
            "parallelism.nodes",
            "cannot change from 1 to more, or back: create a new GuidedModel instead",
            f"{_NODES.format('self')} == {_NODES.format('oldSelf')}",
        ),
        Rule(
            "model.authSecretKeyRef",
            "is allowed only if the model, the draft model or an adapter has an hf:// URI",
            "!has(self.model.authSecretKeyRef) || self.model.uri.startsWith('hf://') || "
            "(has(self.speculative) && has(self.speculative.draftModel) && "
            "self.speculative.draftModel.uri.startsWith('hf://')) || "
            "(has(self.lora) && self.lora.adapters.exists(a, a.uri.startsWith('hf://')))",
        ),
        Rule(
            "logitsProcessors",
            "names must be unique",
            "!has(self.logitsProcessors) || "
            "self.logitsProcessors.all(a, self.logitsProcessors.exists_one(b, b.name == a.name))",
        ),
    )

    model: Model
    engine: Engine
    parallelism: Parallelism = Parallelism()
    guided_decoding: GuidedDecoding = GuidedDecoding()
    logits_processors: Annotated[list[LogitsProcessor], Field(max_length=MOST_PROCESSORS)] = Field(
        default=[], json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    """Stateful logits processors, in the order in which they run. The list is atomic: server-side apply gives
    all of it one owner. Default: none."""
    speculative: Speculative | None = None
    """Speculative decoding. Default: off."""
    lora: Lora | None = None
    """LoRA adapters. Default: none."""
    replicas: Annotated[int, Field(ge=0, le=10_000)] = 1
    """Number of replicas: pods, or groups of parallelism.nodes pods. Default: 1. Leave it out of the manifest
    if a HorizontalPodAutoscaler or KEDA sets it."""
    network_policy: NetworkPolicy | None = None
    """Who may connect to the pods. Default: none, only other policies of the cluster apply."""
    resources: Resources = Resources()
    """CPU, memory and ephemeral-storage of the engine container. ephemeral-storage holds downloads and caches
    that have no PersistentVolumeClaim. Default for each value that is not set: requests of 1 CPU per rank
    plus 2 per engine, and 4Gi of memory per rank plus 4Gi. Set devices in engine.accelerator."""
    rollout: Rollout = Rollout()
    probes: Probes = Probes()
    telemetry: Telemetry | None = None
    """Destination of traces and metrics. Default: none."""
    drain: Drain = Drain()
    sidecar: Sidecar = Sidecar()
    storage: Storage = Storage()
    """Storage that pods write to."""
    pod: Pod = Pod()
    """Metadata, scheduling and volumes of the pods."""

    @property
    def uris(self) -> dict[str, str]:
        """Where everything comes from that a pod loads, by field: model, draft model, adapters."""
        found = {"spec.model.uri": self.model.uri}
        if self.speculative is not None and self.speculative.draft_model is not None:
            found["spec.speculative.draftModel.uri"] = self.speculative.draft_model.uri
        for index, adapter in enumerate(self.lora.adapters if self.lora else ()):
            found[f"spec.lora.adapters[{index}].uri"] = adapter.uri
        return found


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
            f"metadata.name must have at most {NAME_LENGTH} characters, lower-case letters, digits and "
            "dashes, and begin with a letter, because Services and pods are named after it",
            f"self.metadata.name.size() <= {NAME_LENGTH} && self.metadata.name.matches({cel_text(_NAME)})",
        ),
        Rule(
            "spec.lora.adapters",
            "an adapter must not have the served name of the model",
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
