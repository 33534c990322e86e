"""What a user asks for: `spec` of a GuidedModel. Each description says unit, default and reason."""

from typing import Annotated, Final

from pydantic import Field

from guided_contract.choices import MOST_PROCESSORS
from guided_operator.api.base import ApiModel
from guided_operator.api.drain import Drain
from guided_operator.api.engine import Engine
from guided_operator.api.guided_decoding import GuidedDecoding
from guided_operator.api.logits_processors import LogitsProcessor
from guided_operator.api.lora import Lora
from guided_operator.api.model import Model
from guided_operator.api.network_policy import NetworkPolicy
from guided_operator.api.parallelism import Parallelism
from guided_operator.api.pod import Pod
from guided_operator.api.probes import Probes
from guided_operator.api.resources import Resources
from guided_operator.api.rollout import Rollout
from guided_operator.api.rule import Rule, rules
from guided_operator.api.sidecar import Sidecar
from guided_operator.api.speculative import Speculative
from guided_operator.api.storage import Storage
from guided_operator.api.telemetry import Telemetry

_NODES: Final = "(has({0}.parallelism) && has({0}.parallelism.nodes) && {0}.parallelism.nodes > 1)"


class GuidedModelSpec(ApiModel):
    """A model served by vLLM, with guided decoding on every rank."""

    model_config = rules(
        Rule(
            "parallelism.nodes",
            "cannot be changed from 1 to more, or back: create a new GuidedModel instead",
            f"{_NODES.format('self')} == {_NODES.format('oldSelf')}",
        ),
        Rule(
            "model.authSecretKeyRef",
            "may be set only if the model, the draft model or an adapter comes from the Hugging Face hub (hf://)",
            "!has(self.model.authSecretKeyRef) || self.model.uri.startsWith('hf://') || "
            "(has(self.speculative) && has(self.speculative.draftModel) && "
            "self.speculative.draftModel.uri.startsWith('hf://')) || "
            "(has(self.lora) && self.lora.adapters.exists(a, a.uri.startsWith('hf://')))",
        ),
        Rule(
            "logitsProcessors",
            "each name must be there once",
            "!has(self.logitsProcessors) || "
            "self.logitsProcessors.all(a, self.logitsProcessors.exists_one(b, b.name == a.name))",
        ),
    )

    model: Model = Field(description="The model to serve.")
    engine: Engine = Field(description="The vLLM server.")
    parallelism: Parallelism = Field(
        default=Parallelism(), description="How the model is spread over devices."
    )
    guided_decoding: GuidedDecoding = Field(
        default=GuidedDecoding(),
        description="How requests with a schema, regex, choice or grammar are served.",
    )
    logits_processors: Annotated[list[LogitsProcessor], Field(max_length=MOST_PROCESSORS)] = Field(
        default=[],
        description=(
            "Stateful logits processors, applied in this order. The list is atomic: who applies it owns "
            "all of it, because items merged by name would have no certain order. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    speculative: Speculative | None = Field(default=None, description="Speculative decoding. Default: off.")
    lora: Lora | None = Field(default=None, description="LoRA adapters. Default: none.")
    replicas: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=1,
        description=(
            "Number of replicas: pods, or groups of parallelism.nodes pods. Default: 1. Leave it out of "
            "what you apply where a HorizontalPodAutoscaler or KEDA sets it."
        ),
    )
    network_policy: NetworkPolicy | None = Field(
        default=None,
        description="Who may connect to the pods. Default: none, the cluster's own policies apply.",
    )
    resources: Resources = Field(
        default=Resources(),
        description=(
            "CPU, memory and ephemeral-storage (downloads and caches without a claim) of the engine "
            "container. Default, of each that has no value here: requests of 1 CPU for each rank and 2 for "
            "each engine of a pod, and of 4Gi of memory for each rank and 4Gi more. Accelerators are set by "
            "engine.accelerator."
        ),
    )
    rollout: Rollout = Field(default=Rollout(), description="How a change reaches the pods.")
    probes: Probes = Field(default=Probes(), description="Deadlines of health checks.")
    telemetry: Telemetry | None = Field(
        default=None, description="Where traces and metrics go. Default: none, no traces and no PodMonitor."
    )
    drain: Drain = Field(default=Drain(), description="How a pod stops.")
    sidecar: Sidecar = Field(
        default=Sidecar(), description="The sidecar container: grammar workers, telemetry and health."
    )
    storage: Storage = Field(default=Storage(), description="Storage that pods write to.")
    pod: Pod = Field(default=Pod(), description="Metadata, scheduling and volumes of the pods.")

    @property
    def uris(self) -> dict[str, str]:
        """Where everything comes from that a pod loads, by field: model, draft model, adapters."""
        found = {"spec.model.uri": self.model.uri}
        if self.speculative is not None and self.speculative.draft_model is not None:
            found["spec.speculative.draftModel.uri"] = self.speculative.draft_model.uri
        for index, adapter in enumerate(self.lora.adapters if self.lora else ()):
            found[f"spec.lora.adapters[{index}].uri"] = adapter.uri
        return found
