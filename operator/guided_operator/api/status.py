"""What the operator reports: `status` of a GuidedModel.

It counts what there may be many of, and lists none: everybody who watches GuidedModels gets all of it. What
is wrong with one pod, rank or grammar is in a condition's message. What pods say has no bounds: it is cut.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from guided_operator.api.base import ReportedModel, text

MAX_BYTES: Final = 64 << 10  # of the whole as JSON, at six bytes a letter; a usual one has 2 KiB
MAX_COUNT: Final = (1 << 31) - 1
_MORE: Final = "…"

ConditionStatus = Literal["True", "False", "Unknown"]


def _cut(most: int) -> BeforeValidator:
    """Return what cuts a text to so many letters, none of which moves a cursor or turns a text."""

    def shortened(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        seen = "".join(letter for letter in value if letter == "\n" or letter.isprintable())
        if value and not seen:
            return _MORE
        return seen if len(seen) <= most else seen[: most - 1] + _MORE

    return BeforeValidator(shortened)


def _counted(value: Any) -> Any:
    return min(max(value, 0), MAX_COUNT) if isinstance(value, int) else value


Word = Annotated[str, text(64, least=0), _cut(64)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT), BeforeValidator(_counted)]


class Condition(ReportedModel):
    """One aspect of the resource's state."""

    type: Annotated[str, text(32)]
    """Type of the condition."""
    status: ConditionStatus
    """Status of the condition."""
    reason: Annotated[str, text(64, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Reason for the status, as one CamelCase word."""
    message: Annotated[str, text(1024, least=0), _cut(1024)] = ""
    """Details of the status, for people."""
    last_transition_time: Annotated[str, text(32)] = Field(json_schema_extra={"format": "date-time"})
    """When the status last changed, RFC 3339."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec that the condition describes."""


class Resolved(ReportedModel):
    """What the pods of the current revision run."""

    image: Annotated[str, text(512, least=0), _cut(512)] = ""
    """Image of the engine, with its digest where known."""
    model_runner: Annotated[str, text(16, least=0), _cut(16)] = ""
    """vLLM's model runner: V1 or V2."""
    versions: Annotated[dict[str, Word], Field(max_length=8)] = Field(default={})
    """Versions of vllm, guidedmodel (the plugin) and the grammar libraries, by name."""


class TokensNow(ReportedModel):
    """How many draft tokens are proposed at present."""

    min: Count
    """Minimum over the pods."""
    max: Count
    """Maximum over the pods."""


class Speculation(ReportedModel):
    """Speculative decoding in the pods of the current revision."""

    method: Annotated[str, text(16, least=0), _cut(16)] | None = None
    """Method in vLLM's terms: NGram is ngram_gpu on GPUs and ngram on a CPU. Absent if unknown."""
    num_tokens: TokensNow | None = None
    """Number of draft tokens per sequence in the last steps of the engines; with numTokens Auto the last
    choice. Absent before the first step."""
    is_async: bool | None = Field(default=None, alias="async")
    """Whether vLLM schedules asynchronously. Absent if unknown."""
    fallback: Annotated[str, text(128, least=0), _cut(128)] = ""
    """Why speculative decoding is less than specified. Empty if it is not."""


class Ranks(ReportedModel):
    """Ranks of the pods of the current revision whose sidecars have reported."""

    total: Count = 0
    """Expected number of ranks."""
    missing: Count = 0
    """Number of ranks that are not connected to the sidecar."""
    desynced: Count = 0
    """Number of ranks that differed from other ranks."""


class Grammars(ReportedModel):
    """Named grammars, each in its worst state over the pods."""

    ready: Count = 0
    """Number of grammars whose current text is in use."""
    pending: Count = 0
    """Number of grammars that are not compiled and loaded yet."""
    stale: Count = 0
    """Number of grammars with an older text in use, because the current one was refused or is being
    compiled."""
    failed: Count = 0
    """Number of grammars whose text was refused and that have no older one in use."""


class Processors(ReportedModel):
    """The logits processors, over the pods of the current revision whose sidecars have reported."""

    loaded: Count = 0
    """Number of processors that all ranks have loaded."""
    pending: Count = 0
    """Number of processors that are not loaded yet."""


class GuidedModelStatus(ReportedModel):
    """Observed state of a GuidedModel."""

    observed_generation: Annotated[int, Field(ge=-1)] = -1
    """Generation of the spec that the operator last acted on. -1 before the operator has seen the
    resource."""
    replicas: Count = 0
    """Number of pods that exist."""
    ready_replicas: Count = 0
    """Number of pods that are ready."""
    updated_replicas: Count = 0
    """Number of pods of the current revision."""
    selector: Annotated[str, text(256, least=0)] = ""
    """Label selector of the pods, for the scale subresource."""
    url: Annotated[str, text(256, least=0)] = ""
    """URL of the OpenAI API within the cluster."""
    revision: Word = ""
    """The current revision."""
    # Releases before wrote up to eight conditions, and write beside this one during an upgrade.
    conditions: Annotated[list[Condition], Field(max_length=8)] = Field(
        default=[],
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    """Conditions: Ready, Available, Progressing, Compatible, GuidedDecoding and AuxiliaryResourcesReady. The
    last is False if a PodDisruptionBudget or PodMonitor is refused or its API is missing; it does not affect
    the others."""
    resolved: Resolved = Resolved()
    speculation: Speculation | None = None
    """Speculative decoding; absent if it is off."""
    grammars: Grammars = Grammars()
    logits_processors: Processors = Processors()
    """The logits processors."""
    ranks: Ranks = Ranks()
    """Ranks of the pods of the current revision whose sidecars have reported."""
