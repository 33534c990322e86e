"""The memory that a rank and the process of its matchers share: two steps' masks, and who is at work."""

import mmap
from typing import Final

import numpy as np

from guided_grammar.masks import Bitmask, words

# While the device still reads one step's masks, the next step's are filled into another.
SLOTS: Final = 2
_PAGE: Final = mmap.PAGESIZE
# Numbers of `at_work` that are no sequence's.
NOBODY: Final = 0
MANY: Final = -1
LOADS: Final = -2


class SharedMemory:
    """Anonymous, so that the kernel takes it back with the last process; pages count once they are used.

    Attributes
    ----------
    slots
        [rows, ceil(vocabulary / 32)] int32 each.
    at_work
        [2] int64: the number of the sequence that native code works for, or one of the above, and how often
        that has changed.
    loads
        [1] int64: whether its other thread loads a grammar.
    """

    def __init__(self, rows: int, vocab_size: int) -> None:
        shape = SLOTS, rows, words(vocab_size)
        size = 4 * shape[0] * shape[1] * shape[2]
        self._map = mmap.mmap(-1, _PAGE + size)
        first = memoryview(self._map)
        self.at_work = first[:16].cast("q")
        self.loads = first[64:72].cast("q")
        masks = np.frombuffer(self._map, np.int32, size // 4, offset=_PAGE)
        self.slots: list[Bitmask] = list(masks.reshape(shape))
        self.masks: Bitmask = masks

    def work(self, number: int) -> None:
        """Note whom native code works for from now on."""
        at_work = self.at_work
        at_work[0] = number
        at_work[1] += 1
