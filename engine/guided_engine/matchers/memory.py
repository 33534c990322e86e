"""The memory that a rank and the process of its matchers share: two steps' masks, and who is at work."""

import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

from guided_grammar.masks import Bitmask, words

# While the device still reads one step's masks, the next step's are filled into another.
SLOTS: Final = 2
_PAGE: Final = mmap.PAGESIZE


class SharedMemory:
    """Anonymous, so that the kernel takes it back with the last process; pages count once they are used.

    Attributes
    ----------
    slots
        [rows, ceil(vocabulary / 32)] int32 each.
    at_work
        [1] int64; see Matching.
    """

    def __init__(self, rows: int, vocab_size: int) -> None:
        shape = SLOTS, rows, words(vocab_size)
        size = 4 * shape[0] * shape[1] * shape[2]
        self._map = mmap.mmap(-1, _PAGE + size)
        self.at_work: npt.NDArray[np.int64] = np.frombuffer(self._map, np.int64, 1)
        masks = np.frombuffer(self._map, np.int32, size // 4, offset=_PAGE)
        self.slots: list[Bitmask] = list(masks.reshape(shape))
        self.masks: Bitmask = masks
