"""What a logits processor changes in one row of logits: few token ids and values, which add up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

# In one row, by all processors of a sequence; as vLLM's logit_bias and allowed_token_ids.
MOST_IDS: Final = 1024
LARGEST: Final = 1e30  # of a value; sixteen of them and a logit are still a number in float32
FORBIDDEN: Final = float("-inf")
_LARGEST: Final = np.float64(np.float32(LARGEST))
_BLOCK: Final = 4096  # logits that are looked at together


class EditsError(ValueError):
    """A processor's result cannot be applied; the message says why."""


class NoTokenError(Exception):
    """The processors of a sequence leave it no token to sample."""


@dataclass(frozen=True, slots=True, eq=False)
class Edits:
    """Changes of one row of logits. The arrays are read in the step for which they are given, no later.

    Attributes
    ----------
    ids
        [n] integers: token ids below the vocabulary's size. One that is there twice gets both values. All
        processors of a sequence name at most 1,024 different ones in a row.
    values
        [n] floats, what is added to each, from -1e30 to 1e30; -inf forbids the token.
    is_only
        Whether all other tokens are forbidden.
    """

    ids: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, np.int32))
    values: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, np.float32))
    is_only: bool = False

    @classmethod
    def add(cls, ids: Any, values: Any) -> Self:
        """Return Edits that add values, one for all ids or one each, to the logits of these tokens."""
        of, given = np.asarray(ids), np.asarray(values)
        return cls(
            of, np.broadcast_to(given.astype(np.float64) if given.dtype.kind in "iu" else given, of.shape)
        )

    @classmethod
    def forbid(cls, ids: Any) -> Self:
        """Return Edits that forbid these tokens."""
        return cls.add(ids, FORBIDDEN)

    @classmethod
    def only(cls, ids: Any) -> Self:
        """Return Edits that forbid all other tokens."""
        of = np.asarray(ids)
        return cls(of, np.zeros(of.shape, np.float32), is_only=True)

    def copied(self) -> "Edits":
        """Return a checked one as it is now, with arrays that its author cannot change any more."""
        return Edits(np.array(self.ids, np.int32), np.array(self.values, np.float32), bool(self.is_only))


def check(edits: Sequence[Any], vocab_size: int) -> None:
    """Raise EditsError unless all are Edits that can be applied to rows of `vocab_size` logits."""
    for each in edits:
        _check_form(each)
    if not edits:
        return
    ids = np.concatenate([each.ids for each in edits])
    if not len(ids):
        return
    low, high = int(np.minimum.reduce(ids)), int(np.maximum.reduce(ids))
    if low < 0 or high >= vocab_size:
        raise EditsError(f"ids must be from 0 to {vocab_size - 1}, and are from {low} to {high}")
    values = np.concatenate([each.values for each in edits])
    # As float64: in float16, as values may be, the largest would be infinite. In float32 it is a bit more.
    if not ((abs(values) <= _LARGEST) | (values == FORBIDDEN)).all():
        raise EditsError(f"values must be from -{LARGEST:g} to {LARGEST:g}, or -inf")


def _check_form(of: Any) -> None:
    if not isinstance(of, Edits):
        raise EditsError(f"prepare returned a {type(of).__name__} for a row; it must be Edits or None")
    if not _is_vector(of.ids, "iu"):
        raise EditsError("ids must be a numpy array of integers with one dimension")
    if not _is_vector(of.values, "f"):
        raise EditsError("values must be a numpy array of floats with one dimension")
    if not isinstance(of.is_only, bool | np.bool_):
        raise EditsError("is_only must be True or False")
    count = len(of.ids)
    if count != len(of.values):
        raise EditsError(f"a row has {count} ids and {len(of.values)} values")
    if count > MOST_IDS:
        raise EditsError(f"a row has {count} ids; at most {MOST_IDS}, more need a DenseFactory")


def _is_vector(array: Any, kinds: str) -> bool:
    # An empty list makes floats.
    return isinstance(array, np.ndarray) and array.ndim == 1 and (array.dtype.kind in kinds or not array.size)


def combined(of: Mapping[str, Edits]) -> Edits:
    """Return what each processor's checked ones make together of a row, each id once, in ascending order.

    Raises EditsError if they have too many ids together, NoTokenError if they forbid each token.
    """
    edits = list(of.values())
    ids, where = np.unique(np.concatenate([each.ids for each in edits]), return_inverse=True)
    values = np.zeros(len(ids), np.float32)
    np.add.at(values, where, np.concatenate([each.values for each in edits]))
    is_only = any(each.is_only for each in edits)
    if is_only:
        kept = values > FORBIDDEN
        for each in edits:
            if each.is_only:
                kept &= np.isin(ids, each.ids)
        if not kept.any():
            raise NoTokenError
        ids, values = ids[kept], values[kept]
    if len(ids) > MOST_IDS:
        counts = ", ".join(f"{name}: {len(each.ids)}" for name, each in of.items())
        raise EditsError(
            f"{len(ids)} ids in a row ({counts}); all processors of a sequence may have {MOST_IDS} "
            "together: select fewer processors, or return fewer ids"
        )
    return Edits(ids.astype(np.int32, copy=False), values, is_only)


def is_ascending(ids: npt.NDArray[Any]) -> bool:
    """Return whether each id is there once, in order, as `combined` makes them."""
    return len(ids) < 2 or bool((ids[1:] > ids[:-1]).all())


def apply(edits: Edits, row: npt.NDArray[np.float32]) -> bool:
    """Change a row of logits [vocabulary] in place; False: that would leave no token, and it is as it was.

    What the rank's kernel does on a device.
    """
    after = row[edits.ids] + edits.values.astype(np.float32, copy=False)
    if edits.is_only:
        if not _has_token(after):
            return False
        row.fill(FORBIDDEN)
        row[edits.ids] = after
        return True
    before = row[edits.ids]
    row[edits.ids] = after
    # Nearly always there is one among the first that are looked at.
    if _has_token(after) or any(_has_token(row[at : at + _BLOCK]) for at in range(0, len(row), _BLOCK)):
        return True
    row[edits.ids] = before
    return False


def _has_token(logits: npt.NDArray[np.float32]) -> bool:
    return bool((logits > FORBIDDEN).any())
