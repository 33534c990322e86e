"""What is shown of a grammar before a rank sees it: it begins, and a random walk meets no dead end."""

import itertools
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from guided_contract.counting import Bounds, Position, Where
from guided_sidecar.grammar.backends import Compiled

_STEPS: Final = 32
_DRAWS: Final = 100  # of tokens at random, which a string that is nearly full may all refuse; then every one
_BUDGET_S: Final = 0.05  # a walk in structure takes microseconds a step; a slow one is cut short, not refused


def dead_end(compiled: Compiled, positions: Sequence[Position], tokens: Sequence[bytes], seed: str) -> str:
    """Return how the grammar gets stuck, in words, or "" if the walk met no such state.

    Parameters
    ----------
    compiled
        The grammar.
    positions
        The bounds that ranks count beside it: the walk keeps them as they do.
    tokens
        Each token's bytes, as many as the logits are wide; a token beyond them cannot be sampled.
    seed
        The grammar's key: its walk is always the same.
    """
    mask: Any = np.empty((1, compiled.mask_words), dtype=np.int32)  # [1, ceil(vocab / 32)] int32, 1 = allowed
    matcher = compiled.matcher()
    chooser = random.Random(seed)  # noqa: S311 - a walk, not a secret
    # Without bounds the text may be none that they could follow: a regex's, an EBNF grammar's.
    bounds, where = Bounds(positions) if positions else None, Where()
    until = time.monotonic() + _BUDGET_S
    for step in range(_STEPS):
        matcher.fill(mask)
        allowed = _allowed(mask, len(tokens))
        drawn = (chooser.choice(allowed) for _ in range(_DRAWS if len(allowed) else 0))
        chosen = next(_within(bounds, where, itertools.chain(drawn, allowed), tokens), None)
        if chosen is None:
            return _message(step)
        if time.monotonic() > until:
            return ""
        token, where = chosen
        if not matcher.accept(token):
            return f"after {step} tokens, a token that the mask allows is rejected"
        if matcher.has_ended():
            return ""
    return ""


def _within(
    bounds: Bounds | None, where: Where, choices: Iterable[Any], tokens: Sequence[bytes]
) -> Iterator[tuple[int, Where]]:
    """Yield the choices that keep the counted bounds, and where the text stands after each."""
    for token in choices:
        after = bounds.advance(where, tokens[token]) if bounds is not None else where
        if after is not None:
            yield int(token), after


def _message(step: int) -> str:
    if step == 0:
        return "no token can begin it: it has no finite text"
    return f"after {step} tokens no token can follow"


def _allowed(mask: Any, vocab_size: int) -> Any:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")  # [1, padded vocab] uint8
    return np.flatnonzero(bits[:vocab_size])
