"""Masks: rows of one bit per token, 1 = allowed, in 32-bit words."""

from typing import Final

import numpy as np
import numpy.typing as npt

# [rows, ceil(vocabulary / 32)] int32
Bitmask = npt.NDArray[np.int32]
FULL_MASK: Final = np.int32(-1)


def words(vocab_size: int) -> int:
    """Return how many 32-bit words a mask of that many tokens takes."""
    return (vocab_size + 31) // 32


def allows(mask: Bitmask, token: int) -> bool:
    """Return whether a mask, [ceil(vocabulary / 32)] int32, allows a token id; ids beyond it are not."""
    word = token >> 5
    return word < mask.size and bool(mask.item(word) >> (token & 31) & 1)


def forbid(mask: Bitmask, token: int) -> None:
    """Clear a token id's bit in a mask, [ceil(vocabulary / 32)] int32."""
    mask[token >> 5] &= ~np.int32(np.uint32(1 << (token & 31)).view(np.int32))
