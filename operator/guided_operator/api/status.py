"""What the operator reports: `status` of a GuidedModel.

It stays small however many pods and ranks there are, since everybody who watches GuidedModels gets all of it:
of what there may be many there are counts and the worst few. MAX_BYTES is what follows from the bounds below.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from guided_operator.api.base import ReportedModel, text
from guided_operator.api.reported import Count, Message, Word, cut
from guided_operator.api.speculation_status import Speculation

MAX_BYTES: Final = 32 << 10  # of the whole, as JSON
MAX_PODS: Final = 8
MAX_RANKS: Final = 8
MAX_GRAMMARS: Final = 16
MAX_PATCHES: Final = 4
MAX_PROCESSORS: Final = 8

ConditionStatus = Literal["True", "False", "Unknown"]


Name = Annotated[str, text(253), cut(253)]
Generation = Annotated[int, Field(ge=0)]


class Condition(ReportedModel):
    """One aspect of the resource's state."""

    type: Annotated[str, text(32)] = Field(description="Type of the condition.")
    status: ConditionStatus = Field(description="Status of the condition.")
    reason: Annotated[str, text(64, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")] = Field(
        description="Reason for the status, as one CamelCase word."
    )
    message: Annotated[str, text(1024, least=0), cut(1024)] = Field(
        default="", description="Details of the status, for people."
    )
    last_transition_time: Annotated[str, text(32)] = Field(
        description="When the status last changed, RFC 3339.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: Generation = Field(
        default=0, description="Generation of the spec that the condition describes."
    )


class Component(ReportedModel):
    """A part of the engine that has a version."""

    name: Annotated[str, text(32)] = Field(
        description="Name of the component: vllm, guidedmodel (the plugin), or a grammar library's."
    )
    version: Word = Field(description="Version of the component.")


class Resolved(ReportedModel):
    """What the pods of the current revision run."""

    image: Annotated[str, text(512, least=0), cut(512)] = Field(
        default="", description="Image of the engine, with its digest where known."
    )
    model_runner: Annotated[str, text(16, least=0), cut(16)] = Field(
        default="", description="vLLM's model runner: V1 or V2."
    )
    components: Annotated[list[Component], Field(max_length=8)] = Field(
        default=[],
        description="Versions of what runs in the engine.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class PatchStatus(ReportedModel):
    """A change that the plugin made to vLLM."""

    name: Annotated[str, text(64), cut(64)] = Field(description="Name of the change in the plugin's ledger.")
    state: Literal["Applied", "Skipped", "Failed"] = Field(
        description="Result of applying it in vLLM's processes."
    )
    reason: Message = Field(default="", description="Why it was skipped or failed.")


class Patches(ReportedModel):
    """The changes that the plugin made to vLLM; one that pods have in several states has its worst."""

    applied: Count = Field(default=0, description="Number of changes that were applied.")
    skipped: Count = Field(default=0, description="Number of changes that this vLLM does not need.")
    failed: Count = Field(default=0, description="Number of changes that could not be applied.")
    worst: Annotated[list[PatchStatus], Field(max_length=MAX_PATCHES)] = Field(
        default=[],
        description="The worst 4: those that failed, then those that were skipped, then by name.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class RankCounts(ReportedModel):
    """How many ranks there are, and how they are."""

    total: Count = Field(default=0, description="Number of ranks that there should be.")
    missing: Count = Field(default=0, description="Number of ranks that are not connected to the sidecar.")
    desynced: Count = Field(default=0, description="Number of ranks that disagreed with the others.")


class RankState(ReportedModel):
    """A rank of a pod."""

    pod: Name = Field(description="Name of the pod.")
    rank: Count = Field(description="Global rank.")
    state: Literal["Connected", "Missing"] = Field(
        description="Whether the rank is connected to the sidecar."
    )
    desyncs: Count = Field(default=0, description="Number of times it disagreed with the other ranks.")


class Ranks(RankCounts):
    """The ranks of those pods of the current revision whose sidecars have reported."""

    worst: Annotated[list[RankState], Field(max_length=MAX_RANKS)] = Field(
        default=[],
        description=(
            "The worst 8: those that are missing, then those that disagreed with the others, most often "
            "first, then the others; else by pod and rank. All of a pod's are at /status of its sidecar."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["pod", "rank"]},
    )


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


class Grammars(ReportedModel):
    """The named grammars, each as in the pod where its state is worst."""

    ready: Count = Field(default=0, description="Number of grammars that are Ready.")
    pending: Count = Field(default=0, description="Number of grammars that are Pending.")
    stale: Count = Field(default=0, description="Number of grammars that are Stale.")
    failed: Count = Field(default=0, description="Number of grammars that are Failed.")
    worst: Annotated[list[GrammarState], Field(max_length=MAX_GRAMMARS)] = Field(
        default=[],
        description="The worst 16: those that are Failed, then Pending, Stale and Ready; else by name.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class ProcessorState(ReportedModel):
    """A logits processor."""

    name: Annotated[str, text(63)] = Field(description="Name of the logits processor.")
    state: Literal["Pending", "Loaded"] = Field(description="Loaded: all ranks have made its factory.")
    failures: Count = Field(default=0, description="Number of sequences that ended for it.")


class Processors(ReportedModel):
    """The logits processors, over the pods of the current revision whose sidecars have reported."""

    loaded: Count = Field(default=0, description="Number of logits processors that are Loaded.")
    pending: Count = Field(default=0, description="Number of logits processors that are Pending.")
    worst: Annotated[list[ProcessorState], Field(max_length=MAX_PROCESSORS)] = Field(
        default=[],
        description=(
            "The worst 8: those that are Pending, then those for which most sequences ended; else by name."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class GrammarWorkers(ReportedModel):
    """The grammar workers of a pod."""

    ready: Count = Field(default=0, description="Number of workers that can compile.")
    restarts: Count = Field(default=0, description="Number of restarts since the grammar service started.")


class Failure(ReportedModel):
    """The last failure of a grammar worker or of the guided probe."""

    code: Annotated[str, text(64), cut(64)] = Field(description="Error code.")
    message: Message = Field(default="", description="What happened.")
    time: Annotated[str, text(32), cut(32)] = Field(description="When it happened, RFC 3339.")


class PodState(ReportedModel):
    """A pod, as reported by its sidecar."""

    name: Name = Field(description="Name of the pod.")
    revision: Word = Field(default="", description="Revision of the pod.")
    ready: bool = Field(default=False, description="Whether the pod serves guided requests.")
    reason: Word = Field(default="", description="Why the pod is not ready, as one CamelCase word.")
    message: Annotated[str, text(256, least=0), cut(256)] = Field(
        default="", description="Why the pod is not ready, for people."
    )
    container: Word = Field(
        default="", description="Container that the reason is about, init containers included; empty if none."
    )
    restarts: Count = Field(default=0, description="Number of restarts of the pod's containers.")
    ranks: RankCounts = Field(default=RankCounts(), description="Ranks of the pod.")
    grammar_workers: GrammarWorkers = Field(
        default=GrammarWorkers(), description="Grammar workers of the pod."
    )
    last_failure: Failure | None = Field(
        default=None, description="Last failure of a grammar worker or of the guided probe, if any."
    )


class Pods(ReportedModel):
    """The pods, and the worst of them."""

    total: Count = Field(default=0, description="Number of pods, of any revision.")
    ready: Count = Field(default=0, description="Number of pods that are ready.")
    reported: Count = Field(
        default=0, description="Number of pods of the current revision whose sidecars have reported."
    )
    restarts: Count = Field(default=0, description="Number of restarts of the pods' containers.")
    worst: Annotated[list[PodState], Field(max_length=MAX_PODS)] = Field(
        default=[],
        description=(
            "The worst 8: those that need a person, then others that are not ready, then those with most "
            "missing ranks, then those with most ranks that disagreed; else by name."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class GuidedModelStatus(ReportedModel):
    """Observed state of a GuidedModel."""

    observed_generation: Annotated[int, Field(ge=-1)] = Field(
        default=-1,
        description="Generation of the spec that the operator last acted on. -1 until the operator has seen "
        "the resource, so that tools that wait do not take it for finished.",
    )
    replicas: Count = Field(default=0, description="Number of pods that exist.")
    ready_replicas: Count = Field(default=0, description="Number of pods that are ready.")
    updated_replicas: Count = Field(default=0, description="Number of pods of the current revision.")
    selector: Annotated[str, text(256, least=0)] = Field(
        default="", description="Label selector of the pods, for the scale subresource."
    )
    url: Annotated[str, text(256, least=0)] = Field(
        default="", description="URL of the OpenAI API within the cluster."
    )
    revision: Word = Field(default="", description="The current revision.")
    conditions: Annotated[list[Condition], Field(max_length=9)] = Field(
        default=[],
        description=(
            "Conditions: Ready, Available, Progressing, Compatible, GuidedDecoding and "
            "AuxiliaryResourcesReady, which is False while a PodDisruptionBudget or PodMonitor "
            "is refused or its API is missing, and is no part of the others; Telemetry, where "
            "telemetry.endpoint is set; for GitOps tools (kstatus) also Reconciling and Stalled, which are "
            "present only while they are True."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    resolved: Resolved = Field(default=Resolved(), description=("What the pods of the current revision run."))
    speculation: Speculation | None = Field(
        default=None, description="Speculative decoding; absent if it is off."
    )
    patches: Patches = Field(default=Patches(), description="Changes that the plugin made to vLLM.")
    grammars: Grammars = Field(default=Grammars(), description="State of the named grammars.")
    logits_processors: Processors = Field(default=Processors(), description="State of the logits processors.")
    pods: Pods = Field(default=Pods(), description="The pods: counts, and the worst.")
    ranks: Ranks = Field(
        default=Ranks(),
        description=(
            "The ranks of the pods of the current revision whose sidecars have reported: counts, and the "
            "worst."
        ),
    )
