"""No n-gram twice: transformers' no_repeat_ngram_size, or a penalty in its place."""

from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from guided_engine.processors.edits import FORBIDDEN, LARGEST
from guided_engine.processors.interface import (
    Context,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)
from guided_engine.processors.repeats import LONGEST, RepeatsProcessor


class NoRepeatNgramParams(Params, frozen=True):
    """What it can be told.

    Attributes
    ----------
    size
        Tokens of an n-gram; 1: no token twice.
    penalty
        What the logit loses of a token that would complete one again; None forbids it.
    include_prompt
        Whether the prompt's n-grams count; n-grams that begin in it and end in the output do as well then.
    exempt
        Token ids that may always come again.
    """

    size: Annotated[int, Meta(ge=1, le=LONGEST)] = 3
    penalty: Annotated[float, Meta(gt=0, le=LARGEST)] | None = None
    include_prompt: bool = False
    exempt: tuple[Annotated[int, Meta(ge=0)], ...] = ()


class NoRepeatNgram(ProcessorFactory[NoRepeatNgramParams]):
    """Forbids tokens that would complete an n-gram which the sequence has had, or penalises them.

    Stop tokens may always come. A ban can leave a grammar without a token, and the sequence ends then: beside
    grammars use `penalty`. At most 1,024 tokens of a row are forbidden: of more, those that came last.
    """

    Params = NoRepeatNgramParams
    request_params: ClassVar[frozenset[str]] = frozenset({"size", "penalty", "include_prompt"})

    def __init__(self, params: NoRepeatNgramParams, context: Context) -> None:
        super().__init__(params, context)
        if max(params.exempt, default=0) >= context.vocab_size:
            raise ValueError(f"exempt must be ids below {context.vocab_size}, not {max(params.exempt)}")
        self._exempt = np.zeros(context.vocab_size + 1, np.bool_)
        self._exempt[[-1, *params.exempt, *context.stop_tokens]] = True

    def create(self, sequence: SequenceInfo[NoRepeatNgramParams]) -> SequenceProcessor:
        """Return the processor of a sequence that has generated nothing."""
        params = sequence.params
        before = params.size - 1
        value = FORBIDDEN if params.penalty is None else -params.penalty
        made = RepeatsProcessor(
            np.full(before + 1, value, np.float32),
            shortest=before,
            exempt=self._exempt,
            also=sequence.stop_tokens - self.context.stop_tokens,
            are_breakers=False,
        )
        if params.include_prompt:
            made.accept(sequence.prompt_tokens)
        return made
