"""The virtual draft model: which drafts it proposes at each position of each document, from a seed."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

ACCEPTANCE: Final = 0.7  # chance that a draft is right, given that those before it were: a draft model's
_SEED: Final = 20261121


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
    def make(cls, documents: npt.NDArray[np.int64], count: int, acceptance: float = ACCEPTANCE) -> Self:
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
