"""What the operator reports: `status` of a GuidedModel."""

from typing import Annotated, Literal

from pydantic import Field

from guided_operator.api.base import ReportedModel, text

ConditionStatus = Literal["True", "False", "Unknown"]

Short = Annotated[str, text(256, least=0)]
Message = Annotated[str, text(1024, least=0)]
Count = Annotated[int, Field(ge=0)]


class Condition(ReportedModel):
    """One aspect of the resource's state."""

    type: Annotated[str, text(64)] = Field(
        description=(
            "Type of the condition: Ready, Available, Progressing, Compatible, GuidedDecoding or "
            "Telemetry; Reconciling and Stalled are present only while they are True."
        )
    )
    status: ConditionStatus = Field(description="Status of the condition.")
    reason: Annotated[str, text(128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")] = Field(
        description="Reason for the status, as one CamelCase word."
    )
    message: Annotated[str, text(4096, least=0)] = Field(
        default="", description="Details of the status, for people."
    )
    last_transition_time: Annotated[str, text(64)] = Field(
        description="When the status last changed, RFC 3339.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: Count = Field(
        default=0, description="Generation of the spec that the condition describes."
    )


class Resolved(ReportedModel):
    """What the pods of the current revision run."""

    image: Annotated[str, text(512, least=0)] = Field(
        default="", description="Image of the engine, with its digest where known."
    )
    vllm_version: Short = Field(default="", description="Version of vLLM.")
    grammar_libraries: Annotated[dict[str, Short], Field(max_length=16)] = Field(
        default={}, description="Versions of the grammar libraries, by name."
    )
    plugin_version: Short = Field(default="", description="Version of the plugin.")
    model_runner: Short = Field(default="", description="vLLM's model runner: V1 or V2.")


class PatchStatus(ReportedModel):
    """A change that the plugin made to vLLM."""

    name: Annotated[str, text(128)] = Field(description="Name of the change in the plugin's ledger.")
    state: Literal["Applied", "Skipped", "Failed"] = Field(
        description="Result of applying it in vLLM's processes."
    )
    reason: Message = Field(default="", description="Why it was skipped or failed.")


class RankState(ReportedModel):
    """A rank of a pod."""

    rank: Count = Field(description="Global rank.")
    state: Literal["Connected", "Missing"] = Field(
        description="Whether the rank is connected to the sidecar."
    )
    desyncs: Count = Field(default=0, description="Number of times it disagreed with the other ranks.")


class GrammarState(ReportedModel):
    """A named grammar, as in the pod where its state is worst."""

    name: Annotated[str, text(63)] = Field(description="Name of the grammar.")
    state: Literal["Pending", "Ready", "Stale", "Failed"] = Field(
        description=(
            "Ready: the current text is in use. Pending: not compiled and loaded yet. Stale: an older "
            "text is in use, because the current one was refused or is still being compiled. Failed: the "
            "text was refused and there is no older one."
        )
    )
    compile_millis: Count = Field(
        default=0, description="Time that it took to compile and check the text in use, in milliseconds."
    )
    reason: Message = Field(default="", description="Why the grammar is not Ready.")


class GrammarWorkers(ReportedModel):
    """The grammar workers of a pod."""

    ready: Count = Field(default=0, description="Number of workers that can compile.")
    restarts: Count = Field(default=0, description="Number of restarts since the sidecar started.")


class Failure(ReportedModel):
    """The last failure of a grammar worker or of the guided probe."""

    code: Annotated[str, text(64)] = Field(description="Error code.")
    message: Message = Field(default="", description="What happened.")
    time: Annotated[str, text(64)] = Field(description="When it happened, RFC 3339.")


class PodState(ReportedModel):
    """A pod, as reported by its sidecar."""

    name: Annotated[str, text(253)] = Field(description="Name of the pod.")
    revision: Short = Field(default="", description="Revision of the pod.")
    ready: bool = Field(default=False, description="Whether the pod serves guided requests.")
    reason: Short = Field(default="", description="Why the pod is not ready, as one CamelCase word.")
    message: Message = Field(default="", description="Why the pod is not ready, for people.")
    restarts: Count = Field(default=0, description="Number of restarts of the pod's containers.")
    ranks: Annotated[list[RankState], Field(max_length=128)] = Field(
        default=[],
        description="Ranks of the pod.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["rank"]},
    )
    grammar_workers: GrammarWorkers = Field(
        default=GrammarWorkers(), description="Grammar workers of the pod."
    )
    last_failure: Failure | None = Field(
        default=None, description="Last failure of a grammar worker or of the guided probe, if any."
    )


class Speculation(ReportedModel):
    """Result of speculative decoding, over the pods of the current revision."""

    acceptance_rate: Annotated[str, text(8, least=0)] = Field(
        default="",
        description=(
            'Fraction of draft tokens accepted since the engines started, from "0" to "1"; empty until '
            "one was proposed."
        ),
    )
    is_async: bool | None = Field(
        default=None,
        alias="async",
        description="Whether vLLM schedules asynchronously; absent while not known.",
    )
    fallback: Message = Field(
        default="",
        description="Why speculative decoding does less than the spec asks for; empty if it does not.",
    )


class GuidedModelStatus(ReportedModel):
    """Observed state of a GuidedModel."""

    observed_generation: Annotated[int, Field(ge=-1)] = Field(
        default=-1,
        description=(
            "Generation of the spec that the operator last acted on. -1 until the operator has seen the "
            "resource, so that tools that wait do not take it for finished."
        ),
    )
    replicas: Count = Field(default=0, description="Number of pods that exist.")
    ready_replicas: Count = Field(default=0, description="Number of pods that are ready.")
    updated_replicas: Count = Field(default=0, description="Number of pods of the current revision.")
    selector: Message = Field(
        default="", description="Label selector of the pods, for the scale subresource."
    )
    url: Message = Field(default="", description="URL of the OpenAI API within the cluster.")
    revision: Short = Field(default="", description="The current revision.")
    conditions: Annotated[list[Condition], Field(max_length=16)] = Field(
        default=[],
        description=(
            "Conditions: Ready, Available, Progressing, Compatible, GuidedDecoding and Telemetry; for "
            "GitOps tools (kstatus) also Reconciling and Stalled, which are present only while they are "
            "True."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    resolved: Resolved = Field(default=Resolved(), description=("What the pods of the current revision run."))
    speculation: Speculation | None = Field(
        default=None, description="Result of speculative decoding; absent if it is off."
    )
    patches: Annotated[list[PatchStatus], Field(max_length=64)] = Field(
        default=[],
        description="Changes that the plugin made to vLLM.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    grammars: Annotated[list[GrammarState], Field(max_length=64)] = Field(
        default=[],
        description="State of the named grammars.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    pods: Annotated[list[PodState], Field(max_length=64)] = Field(
        default=[],
        description="The first 64 pods, sorted by name.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
