"""Speculative decoding: `spec.speculative`."""

from typing import Annotated, Final, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel, int_or_string
from guided_operator.api.model import ModelSource
from guided_operator.api.rule import Rule, cel_list, rules

_NEEDS_DRAFT: Final = ("DraftModel", "Eagle3", "DFlash")
_TAKES_DRAFT: Final = (*_NEEDS_DRAFT, "DSpark")

_MOST_TOKENS: Final = 32
_DEFAULT_MOST: Final = 3  # with numTokens Auto
NumTokens = Annotated[
    int | str,
    int_or_string(1, _MOST_TOKENS, "^Auto$", number="a number of draft tokens", word="Auto"),
]


class Speculative(ApiModel):
    """Speculative decoding: several tokens are proposed cheaply and verified in one step."""

    model_config = rules(
        Rule(
            "maxTokens",
            "is allowed only with numTokens Auto",
            "type(self.numTokens) == string || !has(self.maxTokens)",
        ),
        Rule(
            "draftModel",
            "is required for methods DraftModel, Eagle3 and DFlash",
            f"!(self.method in {cel_list(_NEEDS_DRAFT)}) || has(self.draftModel)",
        ),
        Rule(
            "draftModel",
            "is not allowed with methods NGram and MTP, which need no draft model",
            f"self.method in {cel_list(_TAKES_DRAFT)} || !has(self.draftModel)",
        ),
    )

    method: Literal["NGram", "DraftModel", "Eagle3", "MTP", "DSpark", "DFlash"]
    """How draft tokens are proposed. NGram: from repeated n-grams of 2 to 5 tokens in prompt and output.
    DraftModel: by a smaller model. Eagle3, DSpark, DFlash: by a head, set as draftModel (DSpark without one:
    the model's own). MTP: by the model's own multi-token prediction layers."""
    num_tokens: NumTokens
    """Number of draft tokens per step, usually 3 to 5. Auto: the engine measures for each batch size whether
    0, 1 or maxTokens is fastest. Auto is not allowed with parallelism.data above 1, disableAbove or
    verification Adaptive."""
    max_tokens: Annotated[int, Field(ge=1, le=_MOST_TOKENS)] | None = None
    """Maximum number of draft tokens per step with numTokens Auto. Allowed only with Auto. Default: 3."""
    draft_model: ModelSource | None = None
    """The draft model, which must have the same tokenizer as the model, or the head. Required for DraftModel,
    Eagle3 and DFlash; not allowed for NGram and MTP. Default: none."""
    draft_sampling: Literal["Greedy", "Probabilistic"] = "Greedy"
    """How a draft model or head chooses tokens. Greedy: the most likely token. Probabilistic: a token sampled
    from its distribution, which takes memory and is accepted more often at high temperatures. Not allowed
    with NGram. Default: Greedy."""
    verification: Literal["Fixed", "Block", "Adaptive"] = "Fixed"
    """How draft tokens are verified; the output is the same. Fixed: each token separately. Block: all tokens
    of a sequence together. Adaptive: only tokens that are likely to be accepted. Default: Fixed."""
    async_scheduling: Literal["Auto", "On", "Off"] = "Auto"
    """Whether vLLM schedules the next step while the current one runs. Quote "On" and "Off" in YAML. Default:
    Auto, on where vLLM supports it, off on a CPU."""
    disable_above: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Batch size, in sequences, above which no draft tokens are verified, because a full batch keeps the
    device busy. Not allowed with parallelism.data above 1, or with NGram on a GPU with Model Runner V1.
    Default: none."""

    @property
    def by_load(self) -> bool:
        """Whether the engine chooses the number of draft tokens."""
        return isinstance(self.num_tokens, str)

    @property
    def most_tokens(self) -> int:
        """The most draft tokens per step."""
        return self.num_tokens if isinstance(self.num_tokens, int) else self.max_tokens or _DEFAULT_MOST
