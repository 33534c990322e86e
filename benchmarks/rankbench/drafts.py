"""The virtual draft model: what it proposes at each position of each document, and what drafting costs.

Costs are those of Model Runner V2 of vLLM 0.32. A method passes over all tokens of the step first, which its
KV cache needs, and then once more over a token of each sequence for each draft token but the first.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from rankbench.clock import Costs

ACCEPTANCE: Final = 0.7  # chance that a draft is right, given that those before it were: a draft model's
_SEED: Final = 20261121


@dataclass(frozen=True, slots=True)
class Method:
    """Seconds are those of a pass over few tokens; `Costs.full_rows` says what few are.

    `acceptance` is the chance that a draft is right where those before it were.
    """

    first_s: float
    next_s: float = 0.0
    acceptance: float = ACCEPTANCE

    def draft_s(self, costs: Costs, drafts: int, tokens: int, batch: int) -> float:
        """Return what a step's drafting takes.

        Parameters
        ----------
        drafts
            Draft tokens of a sequence.
        tokens, batch
            Of the step's forward pass, and its sequences.
        """
        return costs.pass_s(self.first_s, tokens) + (drafts - 1) * costs.pass_s(self.next_s, batch)


METHODS: Final = {
    # vllm/v1/worker/gpu/spec_decode/standalone_ar
    "draft": Method(first_s=0.8e-3, next_s=0.6e-3),
    # target_dependent_ar: a layer and the logits; one layer of MTP is drafted by the same code.
    "eagle3": Method(first_s=0.5e-3, next_s=0.4e-3),
    # ngram: two kernels over the tokens that are there, for all draft tokens at once. 1.97 tokens a step of 4
    # is what prompt lookup finds in JSON whose schema is in the prompt (results/2026-11-26.md).
    "ngram": Method(first_s=0.1e-3, acceptance=0.53),
}


@dataclass(frozen=True, slots=True)
class Drafts:
    """Drafts for every position.

    Attributes
    ----------
    right
        [documents, positions] int64, how many leading drafts equal what will be generated.
    tokens
        [documents, positions, k] int64
    """

    right: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]

    @classmethod
    def make(cls, documents: npt.NDArray[np.int64], count: int, acceptance: float) -> Self:
        """Draw `count` drafts per position; equal documents get equal drafts.

        Parameters
        ----------
        documents
            [documents, tokens] int64
        acceptance
            The chance that a draft is right, given that those before it were.
        """
        rng = np.random.default_rng(_SEED)
        number, length = documents.shape
        hits = rng.random((number, length, count)) < acceptance
        right = np.cumprod(hits, axis=2, dtype=np.int64).sum(axis=2)
        position = np.minimum(np.arange(length)[:, None] + np.arange(count), length - 1)  # [length, count]
        true = documents[:, position]  # [documents, length, count]
        # A wrong draft is another word of the same document, as plausible as the right one.
        other = documents[:, rng.integers(0, length, (length, count))]
        wrong = np.where(other == true, (true + 1) % documents.max(), other)
        tokens = np.where(np.arange(count) < right[:, :, None], true, wrong)
        # Past the end there is nothing to be right about.
        return cls(np.minimum(right, length - 1 - np.arange(length)), tokens)


def drafts_by_method(documents: npt.NDArray[np.int64], count: int) -> dict[str, Drafts]:
    """Return each method's drafts of documents of [documents, tokens] int64; {}: there are none."""
    if not count:
        return {}
    return {name: Drafts.make(documents, count, method.acceptance) for name, method in METHODS.items()}
