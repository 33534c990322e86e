"""`status.speculation` of a GuidedModel."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ReportedModel, text
from guided_operator.api.reported import Count, Message, cut


class TokensNow(ReportedModel):
    """How many draft tokens are proposed at present."""

    min: Count = Field(description="The fewest, over the pods.")
    max: Count = Field(description="The most, over the pods.")


class Speculation(ReportedModel):
    """Speculative decoding in the pods of the current revision."""

    method: Annotated[str, text(16, least=0), cut(16)] | None = Field(
        default=None,
        description=(
            "The method as vLLM resolved it, in vLLM's words: NGram is ngram_gpu on GPUs and ngram on a CPU. "
            "Absent if not known."
        ),
    )
    num_tokens: TokensNow | None = Field(
        default=None,
        description=(
            "Number of draft tokens per sequence, which may follow the load: what the engines' last steps "
            "asked for, with numTokens Auto what was last chosen, whatever is being tried; absent before the "
            "first step."
        ),
    )
    is_async: bool | None = Field(
        default=None, alias="async", description="Whether vLLM schedules asynchronously; absent if not known."
    )
    accepted_rate: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description=(
            "Percentage of guided draft tokens that the model accepts, of those that grammars allow; absent "
            "if none."
        ),
    )
    forbidden_rate: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None, description="Percentage of guided draft tokens that grammars forbid; absent if none."
    )
    fallback: Message = Field(
        default="",
        description="Why speculative decoding does less than the spec asks for; empty if it does not.",
    )
