"""DRY, "don't repeat yourself": the longer what a token would repeat, the less likely it becomes."""

import logging
from typing import Annotated, ClassVar, Final

import numpy as np
from msgspec import Meta

from guided_engine.processors.edits import LARGEST
from guided_engine.processors.interface import (
    Context,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)
from guided_engine.processors.repeats import LONGEST, RepeatsProcessor

_log = logging.getLogger("guided_engine")

_MOST_LAST_N: Final = 32768


class DryParams(Params, frozen=True):
    """What DRY can be told; defaults are those of llama.cpp where it has them.

    Attributes
    ----------
    multiplier
        The penalty of a repeat of `allowed_length`; 0 switches it off.
    base
        By what each further token multiplies it.
    allowed_length
        Tokens that may be there again without a penalty, and the length from which the next one has one.
    longest_match
        Length from which the penalty grows no more.
    last_n
        How many tokens are looked at, the last ones of prompt and output.
    sequence_breakers
        Texts. A token that contains one ends a repeat, and is never penalised.
    """

    multiplier: Annotated[float, Meta(ge=0, le=1000)] = 0.8
    base: Annotated[float, Meta(ge=1, le=10)] = 1.75
    allowed_length: Annotated[int, Meta(ge=1, le=LONGEST)] = 2
    longest_match: Annotated[int, Meta(ge=1, le=LONGEST)] = 50
    last_n: Annotated[int, Meta(ge=2, le=_MOST_LAST_N)] = 4096
    sequence_breakers: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(max_length=64)] = (
        "\n",
        ":",
        '"',
        "*",
    )


class Dry(ProcessorFactory[DryParams]):
    """Penalises tokens that would extend a repetition, as DRY of llama.cpp and text-generation-webui does.

    Where the last n tokens stood before, and n is at least `allowed_length`, the token that came next then
    loses multiplier * base ** (n - allowed_length), at most 1e30; of several n the largest counts.

    Stop tokens are breakers, too, so that a text may end as an earlier one ended. A breaker that takes
    several tokens breaks only where one token contains it. At most 1,024 tokens of a row are penalised: of
    more, those with the largest penalties, and of equal ones those that came last.
    """

    Params = DryParams
    # Not the breakers: to find them takes a look at each token of the vocabulary.
    request_params: ClassVar[frozenset[str]] = frozenset(
        {"multiplier", "base", "allowed_length", "longest_match", "last_n"}
    )

    def __init__(self, params: DryParams, context: Context) -> None:
        super().__init__(params, context)
        self._breaks = np.zeros(context.vocab_size + 1, np.bool_)
        self._breaks[[-1, *context.stop_tokens]] = True
        for text in params.sequence_breakers:
            within = [number for number, of in enumerate(context.token_bytes) if text.encode() in of]
            self._breaks[within] = True
            if not within:
                _log.warning("guidedmodel: no token contains the sequence breaker %r of DRY", text)

    @classmethod
    def check(cls, params: DryParams) -> None:
        """Refuse lengths with which nothing is ever penalised."""
        if params.longest_match < params.allowed_length:
            raise ValueError(f"longest_match must be at least allowed_length ({params.allowed_length})")
        if params.last_n <= params.allowed_length:
            raise ValueError(f"last_n must be more than allowed_length ({params.allowed_length})")

    def create(self, sequence: SequenceInfo[DryParams]) -> SequenceProcessor | None:
        """Return the processor of a sequence that has generated nothing."""
        params = sequence.params
        if not params.multiplier:
            return None
        beyond = np.maximum(np.arange(params.longest_match + 1) - params.allowed_length, 0)
        penalties = np.minimum(params.multiplier * params.base**beyond, LARGEST)
        made = RepeatsProcessor(
            -penalties.astype(np.float32),
            shortest=params.allowed_length,
            exempt=self._breaks,
            also=sequence.stop_tokens - self.context.stop_tokens,
            are_breakers=True,
            last_n=params.last_n,
        )
        made.accept(sequence.prompt_tokens)
        return made
