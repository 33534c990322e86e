"""What the operator reports: `status` of a GuidedModel."""

from typing import Annotated, Literal

from pydantic import Field

from guided_operator.api.base import ReportedModel, text

ConditionStatus = Literal["True", "False", "Unknown"]

Short = Annotated[str, text(256, least=0)]
Message = Annotated[str, text(1024, least=0)]
Count = Annotated[int, Field(ge=0)]


class Condition(ReportedModel):
    """One aspect of the state, as in every Kubernetes API."""

    type: Annotated[str, text(64)] = Field(
        description=(
            "The aspect: Ready, Available, Progressing, Compatible, GuidedDecoding, Telemetry; Reconciling "
            "and Stalled only while they are True."
        )
    )
    status: ConditionStatus = Field(description="Whether it holds.")
    reason: Annotated[str, text(128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")] = Field(
        description="Why, in one word for programs."
    )
    message: Annotated[str, text(4096, least=0)] = Field(default="", description="Why, for people.")
    last_transition_time: Annotated[str, text(64)] = Field(
        description="When the status last changed, RFC 3339.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: Count = Field(default=0, description="The spec's generation that this is about.")


class Resolved(ReportedModel):
    """What the pods of the current revision really run."""

    image: Annotated[str, text(512, least=0)] = Field(
        default="", description="The engine's image, with its digest where known."
    )
    vllm_version: Short = Field(default="", description="Version of vLLM.")
    grammar_libraries: Annotated[dict[str, Short], Field(max_length=16)] = Field(
        default={}, description="Version of each grammar library, by its name."
    )
    plugin_version: Short = Field(default="", description="Version of the plugin.")
    model_runner: Short = Field(default="", description="vLLM's model runner: V1 or V2.")


class PatchStatus(ReportedModel):
    """One change that the plugin made to vLLM."""

    name: Annotated[str, text(128)] = Field(description="Name in the plugin's ledger.")
    state: Literal["Applied", "Skipped", "Failed"] = Field(description="How the processes found it.")
    reason: Message = Field(default="", description="Why it was skipped or failed.")


class RankState(ReportedModel):
    """One rank of a pod."""

    rank: Count = Field(description="Global rank.")
    state: Literal["Connected", "Missing"] = Field(description="Whether it is connected to the sidecar.")
    desyncs: Count = Field(default=0, description="Times it differed from the other ranks.")


class GrammarState(ReportedModel):
    """A named grammar, in the pod where it is worst."""

    name: Annotated[str, text(63)] = Field(description="Its name.")
    state: Literal["Pending", "Ready", "Stale", "Failed"] = Field(
        description=(
            "Ready: in service. Pending: not yet. Stale: an older text is in service. Failed: refused, and "
            "there is no older text."
        )
    )
    compile_millis: Count = Field(
        default=0, description="What compiling and proving the text in service took, in milliseconds."
    )
    reason: Message = Field(default="", description="Why it is not Ready.")


class GrammarWorkers(ReportedModel):
    """The grammar workers of a pod."""

    ready: Count = Field(default=0, description="Workers that take work.")
    restarts: Count = Field(default=0, description="Restarts since the sidecar started.")


class Failure(ReportedModel):
    """The last failure of a grammar worker or probe."""

    code: Annotated[str, text(64)] = Field(description="Code in the error catalogue.")
    message: Message = Field(default="", description="What happened.")
    time: Annotated[str, text(64)] = Field(description="When, RFC 3339.")


class PodState(ReportedModel):
    """One pod, as its sidecar tells."""

    name: Annotated[str, text(253)] = Field(description="The pod's name.")
    revision: Short = Field(default="", description="The revision that it is of.")
    ready: bool = Field(default=False, description="Whether it answers guided requests.")
    reason: Short = Field(default="", description="Why it is not ready.")
    message: Message = Field(default="", description="Why it is not ready, for people.")
    restarts: Count = Field(default=0, description="Restarts of its containers.")
    ranks: Annotated[list[RankState], Field(max_length=128)] = Field(
        default=[],
        description="Its ranks.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["rank"]},
    )
    grammar_workers: GrammarWorkers = Field(default=GrammarWorkers(), description="Its grammar workers.")
    last_failure: Failure | None = Field(default=None, description="Its last failure, if any.")


class Speculation(ReportedModel):
    """What came of speculative decoding, over the pods of the current revision."""

    acceptance_rate: Annotated[str, text(8, least=0)] = Field(
        default="",
        description=(
            'Share of the guessed tokens that were right since the engines started, "0" to "1"; empty: none '
            "was guessed yet."
        ),
    )
    is_async: bool | None = Field(
        default=None, alias="async", description="Whether scheduling is asynchronous; absent: not known yet."
    )
    fallback: Message = Field(
        default="", description="Why it is less than what the spec asks for; empty: it is not."
    )


class GuidedModelStatus(ReportedModel):
    """What is the case."""

    observed_generation: Annotated[int, Field(ge=-1)] = Field(
        default=-1,
        description=(
            "The spec's generation that was last acted upon; -1 before the operator has seen it, so that a "
            "resource without conditions yet is not taken for one that is as it should be."
        ),
    )
    replicas: Count = Field(default=0, description="Pods that are there.")
    ready_replicas: Count = Field(default=0, description="Pods that are ready.")
    updated_replicas: Count = Field(default=0, description="Pods of the current revision.")
    selector: Message = Field(default="", description="The pods' labels, for the scale subresource.")
    url: Message = Field(default="", description="Where clients in the cluster find the OpenAI API.")
    revision: Short = Field(default="", description="The current revision.")
    conditions: Annotated[list[Condition], Field(max_length=16)] = Field(
        default=[],
        description=(
            "Ready, Available, Progressing, Compatible, GuidedDecoding, Telemetry; and for GitOps tools "
            "Reconciling and Stalled, as kstatus reads them: each only while it is True."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    resolved: Resolved = Field(default=Resolved(), description="What the pods really run.")
    speculation: Speculation | None = Field(
        default=None, description="What came of speculative decoding; absent without."
    )
    patches: Annotated[list[PatchStatus], Field(max_length=64)] = Field(
        default=[],
        description="What the plugin changed in vLLM.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    grammars: Annotated[list[GrammarState], Field(max_length=64)] = Field(
        default=[],
        description="The named grammars.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    pods: Annotated[list[PodState], Field(max_length=64)] = Field(
        default=[],
        description="The first 64 pods by name, rank by rank.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
