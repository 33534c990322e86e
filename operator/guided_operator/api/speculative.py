"""Speculative decoding: `spec.speculative`."""

from typing import Annotated, Final, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel
from guided_operator.api.model import ModelSource, source_rules
from guided_operator.api.rule import Rule

_WITH_DRAFT: Final = ("DraftModel", "Eagle3")


class Speculative(ApiModel):
    """Speculative decoding: a cheap guess of several tokens, checked in one step."""

    method: Literal["NGram", "DraftModel", "Eagle3", "MTP"] = Field(
        description=(
            "NGram: guesses from the prompt's own text. DraftModel: a smaller model guesses. Eagle3: a head "
            "trained on the model's hidden states guesses; draftModel is that head. MTP: the model's own "
            "layers for that guess, where it comes with some. No default: none is best for all."
        )
    )
    num_tokens: Annotated[int, Field(ge=1, le=32)] = Field(
        description=(
            "Tokens guessed per step. No default: the best value depends on model and traffic; 3 to 5 is "
            "usual."
        )
    )
    draft_model: ModelSource | None = Field(
        default=None,
        description=(
            "The smaller model, with the same tokenizer, or Eagle3's head. Needed by DraftModel and Eagle3, "
            "refused for NGram and MTP. Default: none."
        ),
    )
    async_scheduling: Literal["Auto", "On", "Off"] = Field(
        default="Auto",
        description=(
            "Whether the next step is scheduled while the last one runs. Default: Auto, on where vLLM "
            "supports it. Quote On and Off in YAML. NGram runs on the CPU between steps and forces Off."
        ),
    )
    disable_above: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description=(
            "Sequences in a step above which nothing is guessed: a full batch keeps the device busy by "
            "itself, and wrong guesses then cost more than right ones save. Default: none, always guessed. "
            "Not with parallelism.data above 1, where vLLM 0.32 ignores it."
        ),
    )


SPECULATIVE_RULES: Final = (
    *source_rules("spec", "speculative", "draftModel"),
    Rule(
        ("spec", "speculative"),
        "draftModel",
        "methods DraftModel and Eagle3 need draftModel.uri",
        "!(self.method in ['DraftModel', 'Eagle3']) || has(self.draftModel)",
        lambda spec: spec.method in _WITH_DRAFT and spec.draft_model is None,
    ),
    Rule(
        ("spec", "speculative"),
        "draftModel",
        "method NGram guesses from the prompt, and MTP by the model itself: there is no draft model",
        "self.method in ['DraftModel', 'Eagle3'] || !has(self.draftModel)",
        lambda spec: spec.method not in _WITH_DRAFT and spec.draft_model is not None,
    ),
    Rule(
        ("spec",),
        "speculative.method",
        "vLLM 0.32 runs no draft model behind pipeline stages: set parallelism.pipeline to 1, or use NGram",
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
        "NGram guesses on the CPU between two steps, so vLLM must schedule synchronously: "
        "use Auto or Off, or another method",
        "self.method != 'NGram' || !has(self.asyncScheduling) || self.asyncScheduling != 'On'",
        lambda spec: spec.method == "NGram" and spec.async_scheduling == "On",
    ),
    Rule(
        ("spec",),
        "speculative.disableAbove",
        "vLLM 0.32 guesses always where there are several engines: set parallelism.data to 1",
        "!has(self.speculative) || !has(self.speculative.disableAbove) || !has(self.parallelism) || "
        "!has(self.parallelism.data) || self.parallelism.data == 1",
        lambda spec: (
            spec.speculative is not None
            and spec.speculative.disable_above is not None
            and spec.parallelism.data > 1
        ),
    ),
)
