"""What is shown of a grammar before a rank sees it: it begins, and a random walk meets no dead end."""

import random
import time
from typing import Any, Final

import numpy as np

from guided_sidecar.grammar.backends import Compiled

_STEPS: Final = 32
_BUDGET_S: Final = 0.05  # a walk in structure takes microseconds a step; a slow one is cut short, not refused


def dead_end(compiled: Compiled, vocab_size: int, seed: str) -> str:
    """Return how the grammar gets stuck, in words, or "" if the walk met no such state.

    Parameters
    ----------
    compiled
        The grammar.
    vocab_size
        Width of the logits; a token beyond it cannot be sampled.
    seed
        The grammar's key: its walk is always the same.
    """
    mask: Any = np.empty((1, compiled.mask_words), dtype=np.int32)  # [1, ceil(vocab / 32)] int32, 1 = allowed
    matcher = compiled.matcher()
    chooser = random.Random(seed)  # noqa: S311 - a walk, not a secret
    until = time.monotonic() + _BUDGET_S
    for step in range(_STEPS):
        matcher.fill(mask)
        allowed = _allowed(mask, vocab_size)
        if not len(allowed):
            return _message(step)
        if time.monotonic() > until:
            return ""
        if not matcher.accept(int(chooser.choice(allowed))):
            return f"after {step} tokens, a token that the mask allows is rejected"
        if matcher.has_ended():
            return ""
    return ""


def _message(step: int) -> str:
    if step == 0:
        return "no token can begin it: it has no finite text"
    return f"after {step} tokens no token can follow"


def _allowed(mask: Any, vocab_size: int) -> Any:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")  # [1, padded vocab] uint8
    return np.flatnonzero(bits[:vocab_size])
