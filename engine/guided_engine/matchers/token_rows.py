"""Sets of tokens as mask rows, [ceil(vocabulary / 32)] int32, one bit a token."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from guided_grammar.masks import Bitmask, words


def packed(bits: npt.NDArray[np.bool_]) -> Bitmask:
    """Return a row of the tokens that are True in `bits`, [a multiple of 32]."""
    return np.packbits(bits, bitorder="little").view(np.int32)


def row_of(tokens: Iterable[int], vocab_size: int) -> Bitmask:
    """Return a row of these tokens, but those that no row of so many has."""
    bits = np.zeros(words(vocab_size) * 32, dtype=np.bool_)
    bits[[token for token in tokens if token < len(bits)]] = True
    return packed(bits)


def tokens_of(row: Bitmask) -> list[int]:
    """Return the tokens of a row that has few."""
    found = [(word * 32, int(row[word])) for word in np.flatnonzero(row).tolist()]
    return [first + bit for first, bits in found for bit in range(32) if bits >> bit & 1]
