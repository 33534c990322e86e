"""Speculative decoding: `spec.speculative`."""

from typing import Annotated, Final, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel
from guided_operator.api.model import ModelSource, source_rules
from guided_operator.api.rule import Rule

_WITH_DRAFT: Final = ("DraftModel", "Eagle3")


class Speculative(ApiModel):
    """Speculative decoding: several tokens are proposed cheaply and verified in one step."""

    method: Literal["NGram", "DraftModel", "Eagle3", "MTP"] = Field(
        description=(
            "How draft tokens are proposed. NGram: by matching the prompt's own text. DraftModel: by a "
            "smaller model. Eagle3: by a head trained on the model's hidden states, given as draftModel. "
            "MTP: by the model's own multi-token prediction layers, where it has them. No default: none "
            "is best for all models."
        )
    )
    num_tokens: Annotated[int, Field(ge=1, le=32)] = Field(
        description=(
            "Number of draft tokens per step. No default: the best value depends on model and traffic; 3 "
            "to 5 is usual."
        )
    )
    draft_model: ModelSource | None = Field(
        default=None,
        description=(
            "The draft model, which has the same tokenizer, or the Eagle3 head. Required for DraftModel "
            "and Eagle3, not allowed for NGram and MTP. Default: none."
        ),
    )
    async_scheduling: Literal["Auto", "On", "Off"] = Field(
        default="Auto",
        description=(
            'Whether vLLM schedules the next step while the last one runs. Quote "On" and "Off" in YAML. '
            "NGram runs on the CPU between steps and always has it off. Default: Auto, on where vLLM "
            "supports it."
        ),
    )
    disable_above: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description=(
            "Batch size, in sequences, above which no draft tokens are proposed: a full batch keeps the "
            "device busy, and wrong draft tokens then cost more than right ones save. Not allowed with "
            "parallelism.data above 1. Default: none, always propose."
        ),
    )


SPECULATIVE_RULES: Final = (
    *source_rules("spec", "speculative", "draftModel"),
    Rule(
        ("spec", "speculative"),
        "draftModel",
        "is required for methods DraftModel and Eagle3",
        "!(self.method in ['DraftModel', 'Eagle3']) || has(self.draftModel)",
        lambda spec: spec.method in _WITH_DRAFT and spec.draft_model is None,
    ),
    Rule(
        ("spec", "speculative"),
        "draftModel",
        "is not allowed with methods NGram and MTP, which need no draft model",
        "self.method in ['DraftModel', 'Eagle3'] || !has(self.draftModel)",
        lambda spec: spec.method not in _WITH_DRAFT and spec.draft_model is not None,
    ),
    Rule(
        ("spec",),
        "speculative.method",
        "vLLM supports no draft model with pipeline parallelism: set parallelism.pipeline to 1, or use NGram",
        "!has(self.speculative) || self.speculative.method == 'NGram' || !has(self.parallelism) || "
        "!has(self.parallelism.pipeline) || self.parallelism.pipeline == 1",
        lambda spec: (
            spec.speculative is not None
            and spec.speculative.method != "NGram"
            and spec.parallelism.pipeline > 1
        ),
    ),
    Rule(
        ("spec", "speculative"),
        "asyncScheduling",
        "NGram runs on the CPU between two steps and needs synchronous scheduling: use Auto or "
        "Off, or another method",
        "self.method != 'NGram' || !has(self.asyncScheduling) || self.asyncScheduling != 'On'",
        lambda spec: spec.method == "NGram" and spec.async_scheduling == "On",
    ),
    Rule(
        ("spec",),
        "speculative.disableAbove",
        "vLLM ignores it with several engines: set parallelism.data to 1",
        "!has(self.speculative) || !has(self.speculative.disableAbove) || !has(self.parallelism) || "
        "!has(self.parallelism.data) || self.parallelism.data == 1",
        lambda spec: (
            spec.speculative is not None
            and spec.speculative.disable_above is not None
            and spec.parallelism.data > 1
        ),
    ),
)
