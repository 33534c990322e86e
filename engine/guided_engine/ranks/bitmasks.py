"""The step's bitmask: one buffer, filled by the backend of each sequence, as wide as the runner wants it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from guided_engine.ranks.matchers import Bitmask, GuidanceMatcher, XGrammarMatcher
from guided_engine.ranks.prototypes import Vocabulary
from guided_engine.ranks.walks import FULL_MASK, Fill, GuidanceFiller, Walk, XGrammarFiller, fill_walks


@dataclass(slots=True)
class _Backend:
    matcher: type
    fill: Fill
    vocab_size: Callable[[], int]
    scratch: Bitmask | None = None


class BitmaskBuffer:
    """Fills walks of all backends into one array, reused from step to step.

    Parameters
    ----------
    rows
        The most rows that a step can have.
    vocab_size
        The model's vocabulary: the width of its logits.
    vocabulary
        The tokenizer, whose own width differs where it counts more tokens than the model, or fewer.
    """

    def __init__(self, rows: int, vocab_size: int, vocabulary: Vocabulary) -> None:
        self._rows = rows
        self._words = words(vocab_size)
        self._bitmask: Bitmask | None = None
        self._backends = (
            _Backend(XGrammarMatcher, XGrammarFiller().fill, lambda: vocabulary.tokenizer_info().vocab_size),
            _Backend(
                GuidanceMatcher, GuidanceFiller().fill, lambda: vocabulary.guidance_tokenizer().vocab_size
            ),
        )

    def fill(self, walks: Sequence[Walk[Any]]) -> tuple[Bitmask, int]:
        """Fill the rows of `walks`, in ascending order; rows between them stay as they are.

        Returns
        -------
        bitmask, duration_ns
            [rows, ceil(vocabulary / 32)] int32, valid until the next call, and how long one row took.
        """
        if self._bitmask is None:
            self._bitmask = np.full((self._rows, self._words), FULL_MASK, dtype=np.int32)
        start_ns = time.perf_counter_ns()
        for backend in self._backends:
            of_backend = [walk for walk in walks if isinstance(walk.matcher, backend.matcher)]
            if of_backend:
                self._fill_backend(backend, of_backend, self._bitmask)
        end = walks[-1].end
        return self._bitmask[:end], (time.perf_counter_ns() - start_ns) // end

    def _fill_backend(self, backend: _Backend, walks: Sequence[Walk[Any]], bitmask: Bitmask) -> None:
        width = words(backend.vocab_size())
        if width == self._words:
            fill_walks(walks, bitmask, backend.fill)
            return
        # It counts another vocabulary, and writes its own width; what the model lacks cannot be sampled.
        if backend.scratch is None:
            backend.scratch = np.full((self._rows, width), FULL_MASK, dtype=np.int32)
        fill_walks(walks, backend.scratch, backend.fill)
        shared = min(width, self._words)
        for walk in walks:
            bitmask[walk.row : walk.end, :shared] = backend.scratch[walk.row : walk.end, :shared]
            bitmask[walk.row : walk.row + walk.filled, shared:] = 0
            bitmask[walk.row + walk.filled : walk.end, shared:] = FULL_MASK


def words(vocab_size: int) -> int:
    """Return how many 32-bit words a mask of that many tokens takes."""
    return (vocab_size + 31) // 32


def settle_dead_ends(walks: Sequence[Walk[Any]], bitmask: Bitmask) -> list[Walk[Any]]:
    """Return the walks whose next token has no choice at all, their rows made full.

    A later row without a choice makes the draft before it unacceptable: sampling may not go that way.
    """
    has_choice: npt.NDArray[np.bool_] = np.any(bitmask, axis=1)  # [rows]
    if has_choice.all():
        return []
    dead = []
    for walk in walks:
        blocked = np.flatnonzero(~has_choice[walk.row : walk.end])
        if not blocked.size:
            continue
        first = int(blocked[0])
        bitmask[walk.row + first : walk.end] = FULL_MASK
        if first == 0:
            dead.append(walk)
        else:
            walk.valid = min(walk.valid, first - 1)
    return dead
