"""What a user asks for: `spec` of a GuidedModel. Each description says unit, default and reason."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, text, unique_names
from guided_operator.api.drain import Drain
from guided_operator.api.engine import Engine
from guided_operator.api.guided_decoding import GuidedDecoding
from guided_operator.api.lora import Lora
from guided_operator.api.model import Model
from guided_operator.api.pod_spec import Probes, Resources, Sidecar, Telemetry
from guided_operator.api.pod_template import PodTemplate
from guided_operator.api.rollout import Rollout
from guided_operator.api.scaling import Autoscaling, NetworkPolicy, Parallelism
from guided_operator.api.speculative import Speculative
from guided_operator.api.storage import Storage


class LogitsProcessor(ApiModel):
    """A stateful logits processor, made once per sequence by its factory."""

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description="What requests call it; unique in the list."
    )
    factory: Annotated[
        str,
        text(
            256,
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$",
        ),
    ] = Field(description='The class that makes it, as "package.module:Class", importable in the engine.')
    params: Annotated[dict[str, Any], Field(max_length=32)] = Field(
        default={}, description="Keyword arguments of the factory, any JSON. Default: none."
    )
    apply_by_default: bool = Field(
        default=True,
        description="Whether requests that do not name it get it too. Default: true.",
    )


class GuidedModelSpec(ApiModel):
    """A model served by vLLM, with guided decoding on every rank."""

    model: Model = Field(description="The model to serve.")
    engine: Engine = Field(description="The vLLM that serves it.")
    parallelism: Parallelism = Field(default=Parallelism(), description="How it is spread over devices.")
    guided_decoding: GuidedDecoding = Field(default=GuidedDecoding(), description="How guided requests run.")
    logits_processors: Annotated[
        list[LogitsProcessor], Field(max_length=16), AfterValidator(unique_names)
    ] = Field(
        default=[],
        description="Logits processors, applied in this order. Default: none.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    speculative: Speculative | None = Field(
        default=None, description="Speculative decoding. Default: absent, off."
    )
    lora: Lora | None = Field(default=None, description="LoRA adapters. Default: absent, none.")
    replicas: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=1,
        description=(
            "Replicas of the model: pods, or groups of parallelism.nodes pods. Default: 1. 0 keeps all but "
            "the pods. With autoscaling, leave it out: the autoscaler sets it."
        ),
    )
    autoscaling: Autoscaling | None = Field(
        default=None, description="Who sets replicas in the user's place. Absent: nobody."
    )
    network_policy: NetworkPolicy | None = Field(
        default=None, description="Who may connect to the pods. Absent: as the cluster has it."
    )
    resources: Resources = Field(
        default=Resources(),
        description=("CPU and memory of the engine container. Default: none. GPUs follow from parallelism."),
    )
    rollout: Rollout = Field(default=Rollout(), description="How a change reaches the pods.")
    probes: Probes = Field(default=Probes(), description="Deadlines of health checks.")
    telemetry: Telemetry | None = Field(
        default=None, description="Where traces and metrics go. Absent: nowhere."
    )
    drain: Drain = Field(default=Drain(), description="How a pod goes.")
    sidecar: Sidecar = Field(default=Sidecar(), description="The process beside the engine.")
    storage: Storage = Field(default=Storage(), description="Where pods write.")
    pod_template: PodTemplate = Field(
        default=PodTemplate(), description="What pods have beside the model: labels, scheduling, volumes."
    )

    @property
    def uris(self) -> dict[str, str]:
        """Where everything comes from that a pod loads, by field: model, draft model, adapters."""
        found = {"spec.model.uri": self.model.uri}
        if self.speculative is not None and self.speculative.draft_model is not None:
            found["spec.speculative.draftModel.uri"] = self.speculative.draft_model.uri
        for index, adapter in enumerate(self.lora.adapters if self.lora else ()):
            found[f"spec.lora.adapters[{index}].uri"] = adapter.uri
        return found
