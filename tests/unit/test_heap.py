"""How much of the heap is in use, judged by what a test itself allocates and frees."""

import numpy as np

from guided_grammar import heap

SIZE = 64 << 20


def test_what_is_allocated_counts_until_it_is_freed() -> None:
    before = heap.in_use()
    block = np.ones(SIZE, dtype=np.uint8)
    held = heap.in_use()
    del block
    after = heap.in_use()
    assert SIZE <= held - before < SIZE + (1 << 20)
    assert abs(after - before) < 1 << 20
