"""The kernel that applies a step's edits to its rows of logits; runs where vLLM's own Triton kernels do."""

from typing import Any, Final

import torch
from vllm.triton_utils import tl, triton

from guided_engine.processors.edits import MOST_IDS
from guided_engine.ranks import row_edits

_FORBIDS: Final = tl.constexpr(row_edits.FORBIDS)
_IS_ONLY: Final = tl.constexpr(row_edits.IS_ONLY)
_BLOCK = 8192  # logits at once

ENTRY: Final = 3  # int32 of a row in the table: where its ids begin, its values, its mode and their number
MODE_SHIFT: Final = 16  # of the mode in the third
_ENTRY: Final = tl.constexpr(ENTRY)
_MODE_SHIFT: Final = tl.constexpr(MODE_SHIFT)


# Triton evaluates annotations, and takes those of constants alone.
@triton.jit  # type: ignore[untyped-decorator]  # vLLM is untyped here
def _edits_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN202, PLR0913, PLR0917 - as kernels are
    logits_ptr,  # noqa: ANN001 - see above
    logits_stride,  # noqa: ANN001 - likewise
    vocab_size,  # noqa: ANN001 - likewise
    # [rows] which request a row is of, and its place among that request's rows
    slots_ptr,  # noqa: ANN001 - likewise
    positions_ptr,  # noqa: ANN001 - likewise
    # [slots, positions, ENTRY] int32, then ids and values
    edits_ptr,  # noqa: ANN001 - likewise
    # the same memory as float32
    values_ptr,  # noqa: ANN001 - likewise
    num_positions,  # noqa: ANN001 - likewise
    # [slots, positions] int32: set to 1 where a row would have no token left
    emptied_ptr,  # noqa: ANN001 - likewise
    MOST_IDS: tl.constexpr,  # noqa: N803 - a constant
    BLOCK: tl.constexpr,  # noqa: N803 - likewise
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + row)
    position = tl.load(positions_ptr + row)
    place = slot * num_positions + position
    entry = edits_ptr + _ENTRY * place
    said = tl.load(entry + 2)
    count = said & 0xFFFF
    mode = said >> _MODE_SHIFT
    if count > 0:
        block = tl.arange(0, MOST_IDS)
        is_one = block < count
        ids = tl.load(edits_ptr + tl.load(entry) + block, mask=is_one, other=0)
        values = tl.load(values_ptr + tl.load(entry + 1) + block, mask=is_one, other=0.0)
        row_ptr = logits_ptr + row * logits_stride
        before = tl.load(row_ptr + ids, mask=is_one, other=-float("inf"))
        after = before + values
        if mode == _IS_ONLY:
            if tl.max(after, axis=0) == -float("inf"):
                tl.store(emptied_ptr + place, 1)
            else:
                tl.debug_barrier()  # all are read before any is overwritten
                for first in range(0, vocab_size, BLOCK):
                    columns = first + tl.arange(0, BLOCK)
                    tl.store(row_ptr + columns, -float("inf"), mask=columns < vocab_size)
                tl.debug_barrier()
                tl.store(row_ptr + ids, after, mask=is_one)
        else:
            tl.store(row_ptr + ids, after, mask=is_one)
            if mode == _FORBIDS:
                tl.debug_barrier()
                # A token that is left is nearly always found in the first block.
                largest = tl.full((), -float("inf"), tl.float32)
                first = 0
                while (first < vocab_size) & (largest == -float("inf")):
                    columns = first + tl.arange(0, BLOCK)
                    some = tl.load(row_ptr + columns, mask=columns < vocab_size, other=-float("inf"))
                    largest = tl.max(some, axis=0)
                    first += BLOCK
                if largest == -float("inf"):
                    tl.store(row_ptr + ids, before, mask=is_one)
                    tl.store(emptied_ptr + place, 1)


def apply(  # noqa: PLR0913, PLR0917 - the kernel's own
    logits: Any, slots: Any, positions: Any, edits: Any, num_positions: int, emptied: Any
) -> None:
    """Change `logits` in place; a row that would have no token left stays as it is.

    Parameters
    ----------
    logits
        [rows, vocabulary] float32.
    slots, positions
        [rows] integers: which request a row is of, and its place among that request's rows.
    edits
        int32: a table [slots, num_positions, ENTRY] of where in `edits` a row's ids and values (float32)
        begin, and of its mode and how many there are; then these.
    num_positions
        Rows that a request can have.
    emptied
        [slots, num_positions] int32: becomes 1 for a row that would have no token left.
    """
    _edits_kernel[(logits.shape[0],)](
        logits,
        logits.stride(0),
        logits.shape[1],
        slots,
        positions,
        edits,
        edits.view(torch.float32),
        num_positions,
        emptied,
        MOST_IDS=MOST_IDS,
        BLOCK=_BLOCK,
    )
