"""Speculative decoding: `spec.speculative`."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from guided_operator.api.base import ApiModel
from guided_operator.api.model import ModelSource
from guided_operator.api.rule import Rule, cel_list, rules

_NEEDS_DRAFT: Final = ("DraftModel", "Eagle3", "DFlash")
_TAKES_DRAFT: Final = (*_NEEDS_DRAFT, "DSpark")


_MOST_TOKENS: Final = 32
_DEFAULT_MOST: Final = 3  # with numTokens Auto


def _number(value: int | str) -> int | str:
    if isinstance(value, str):
        if value != "Auto":
            raise ValueError(f'"{value}" is neither a number of draft tokens nor Auto')
    elif not 1 <= value <= _MOST_TOKENS:
        raise ValueError(f"must be between 1 and {_MOST_TOKENS}")
    return value


def _of_a_kind(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a number of draft tokens, or Auto")  # noqa: TRY004 - what pydantic takes
    return value


NumTokens = Annotated[
    int | str,
    BeforeValidator(_of_a_kind),
    AfterValidator(_number),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "minimum": 1,
            "maximum": _MOST_TOKENS,
            "pattern": "^Auto$",
            "maxLength": 4,
        }
    ),
]


class PromptLookup(ApiModel):
    """Which repetitions NGram looks for."""

    model_config = rules(
        Rule("min", "must not exceed max", "(has(self.min) ? self.min : 2) <= (has(self.max) ? self.max : 5)")
    )

    min: Annotated[int, Field(ge=1, le=64)] = Field(
        default=2,
        description=(
            "Minimum n-gram length to match. Default: 2, measured: 1 finds more, "
            "and nearly trebles what is proposed in new text, most of it wrong; 5, vLLM's own, finds a third "
            "of what 2 finds in JSON."
        ),
    )
    max: Annotated[int, Field(ge=1, le=64)] = Field(
        default=5,
        description="Maximum n-gram length; the longest match is used. Default: 5, as in vLLM.",
    )


class Speculative(ApiModel):
    """Speculative decoding: several tokens are proposed cheaply and verified in one step."""

    model_config = rules(
        Rule(
            "maxTokens",
            "is allowed with numTokens Auto alone",
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
        Rule(
            "promptLookup",
            "is allowed with method NGram alone",
            "self.method == 'NGram' || !has(self.promptLookup)",
        ),
    )

    method: Literal["NGram", "DraftModel", "Eagle3", "MTP", "DSpark", "DFlash"] = Field(
        description=(
            "How draft tokens are proposed. NGram: what followed the last tokens where they stand earlier in "
            "prompt or output. DraftModel: by a smaller model. Eagle3: by a head trained on the model's "
            "hidden states, given as draftModel. MTP: by the model's own multi-token prediction layers, "
            "where it has them. DSpark and DFlash: by a head that proposes all of its tokens at once, given "
            "as draftModel; DSpark without one by the model's own, which DeepSeek V4.1 has. No default: none "
            "is best for all models."
        )
    )
    num_tokens: NumTokens = Field(
        description=(
            "Number of draft tokens per step, or Auto: 0, 1 or maxTokens of them, which the engine chooses "
            "for each batch size by what steps take and how many drafts are accepted, and goes on measuring. "
            "Auto makes the start longer, as there are graphs for each of the three. Not allowed with "
            "parallelism.data above 1, disableAbove and verification Adaptive. No default: the best number "
            "depends on model and traffic; 3 to 5 is usual."
        )
    )
    max_tokens: Annotated[int, Field(ge=1, le=_MOST_TOKENS)] | None = Field(
        default=None,
        description="Most draft tokens per step with numTokens Auto, and allowed with it alone. Default: 3.",
    )
    draft_model: ModelSource | None = Field(
        default=None,
        description=(
            "The draft model, which has the same tokenizer, or the head. Required for DraftModel, Eagle3 and "
            "DFlash, not allowed for NGram and MTP. Default: none."
        ),
    )
    prompt_lookup: PromptLookup | None = Field(
        default=None,
        description="Which repetitions NGram looks for. Only with method NGram. Default: of 2 to 5 tokens.",
    )
    draft_sampling: Literal["Greedy", "Probabilistic"] = Field(
        default="Greedy",
        description=(
            "Which token a draft model or head proposes. Greedy: the likeliest. Probabilistic: one drawn "
            "from its distribution, which is kept for the verification: more are accepted at high "
            "temperatures, and it takes max(batch) times numTokens times vocabulary of memory. On Model "
            "Runner V1 the draw does not follow a request's seed. Not allowed with NGram. Default: Greedy, "
            "as in vLLM."
        ),
    )
    verification: Literal["Fixed", "Block", "Adaptive"] = Field(
        default="Fixed",
        description=(
            "How draft tokens are verified; none changes what is generated. Fixed: each by itself, all in "
            "each step. Block: all of a sequence's together, which accepts no fewer. Adaptive: each by "
            "itself, and in a step only as many as are likely enough to be accepted to pay for the larger "
            "batch. Default: Fixed, as in vLLM."
        ),
    )
    async_scheduling: Literal["Auto", "On", "Off"] = Field(
        default="Auto",
        description=(
            'Whether vLLM schedules the next step while the last one runs. Quote "On" and "Off" in YAML. '
            "vLLM has it off with NGram on a CPU, and behind pipeline stages on Model Runner V1. Default: "
            "Auto, on where vLLM supports it, and off on a CPU, where nothing overlaps."
        ),
    )
    disable_above: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description=(
            "Batch size, in sequences, above which no draft tokens are verified: a full batch keeps the "
            "device busy, and wrong draft tokens then cost more than right ones save. What else it saves "
            "depends on the method. DraftModel, Eagle3, and MTP where one layer proposes all tokens: all but "
            "the first of the draft's passes, which its KV cache needs. MTP with a layer for each token: the "
            "same on Model Runner V1, nothing on V2, where the draft runs as before and what it proposes is "
            "dropped. DSpark and DFlash: nothing, they have one pass. NGram has nothing to save. Not allowed "
            "with parallelism.data above 1, and with NGram on a GPU on Model Runner V1, which it would end. "
            "Default: none, always verify."
        ),
    )

    @property
    def by_load(self) -> bool:
        """Whether the engine chooses the number of draft tokens."""
        return isinstance(self.num_tokens, str)

    @property
    def most_tokens(self) -> int:
        """The most draft tokens per step."""
        return self.num_tokens if isinstance(self.num_tokens, int) else self.max_tokens or _DEFAULT_MOST
