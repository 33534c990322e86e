"""What a rank does around a DenseFactory's `apply`; the one module here that needs torch. Nothing is read."""

from collections.abc import Sequence
from typing import Any, Final

import torch

from guided_engine.processors.failures import PASSED_ON, log_failure
from guided_engine.processors.interface import DenseFactory

# How a row came out.
IS_RIGHT: Final = 0
IS_EMPTY: Final = 1  # no token is left
IS_WRONG: Final = 2  # NaN or +inf

# Of the rows that are given at once; about twice as much is held meanwhile. On a CPU what its cache holds:
# memory that is new to a process costs it as much as all that is done with the rows.
_MOST_BYTES: Final = 64 << 20
_MOST_BYTES_ON_CPU: Final = 4 << 20


def apply(factory: DenseFactory[Any], results: Sequence[Any], logits: Any, index: Any) -> Any:
    """Have a factory change some rows of `logits` in place; one that does not come out right stays as it was.

    `results` [n] are what `prepare` returned for the rows `index` [n] int64 of `logits` [rows, vocabulary]
    float32. Returns [n] int32 on the device: IS_RIGHT, IS_EMPTY or IS_WRONG.
    """
    most = _MOST_BYTES_ON_CPU if logits.is_cpu else _MOST_BYTES
    rows = max(1, most // (logits.element_size() * logits.shape[1]))
    starts = range(0, len(results), rows)
    parts = [_part(factory, results[at : at + rows], logits, index[at : at + rows]) for at in starts]
    return torch.cat(parts)


def _part(factory: DenseFactory[Any], results: Sequence[Any], logits: Any, index: Any) -> Any:
    before = logits.index_select(0, index)
    after = before.clone()
    factory.apply(after, results)
    if (after.shape, after.dtype) != (before.shape, before.dtype):
        raise ValueError("apply changed the shape or type of the logits")
    torch.where(before.isneginf(), before, after, out=after)
    largest = after.amax(dim=-1)  # NaN of a row that has one
    codes = (largest.isnan() | largest.isposinf()) * IS_WRONG + largest.isneginf() * IS_EMPTY
    torch.where((codes == IS_RIGHT)[:, None], after, before, out=after)
    logits.index_copy_(0, index, after)
    return codes.to(torch.int32)


def tried(factory: DenseFactory[Any], results: Sequence[Any], logits: Any, index: Any) -> Any:
    """Do what `apply` does; where the factory raises, all its rows are IS_WRONG."""
    try:
        return apply(factory, results, logits, index)
    except PASSED_ON:
        raise
    except BaseException as error:  # noqa: BLE001 - the author's code; only the sequences that have it pay
        log_failure(f"{type(factory).__qualname__}.apply failed; its sequences are ended", error)
        return torch.full((len(results),), IS_WRONG, dtype=torch.int32, device=logits.device)
