"""Paired ratios with confidence bounds."""

import math
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

# Two-sided 95 % of Student's t, by degrees of freedom; the last for all larger ones.
_T_95: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.179, 2.145, 2.0)


class Bounded(NamedTuple):
    """An estimate and its 95 % bounds; without enough values the bounds are the estimate itself."""

    value: float
    low: float
    high: float


def mean(values: Sequence[float]) -> Bounded:
    """Return the mean of values."""
    middle = statistics.fmean(values)
    reach = _reach(values)
    return Bounded(middle, middle - reach, middle + reach)


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Bounded:
    """Return the geometric mean of `ours[i] / theirs[i]`.

    What disturbs the machine for a while disturbs both of a pair, so their ratio scatters less than they do.

    Raises
    ------
    ValueError
        The pairs are not complete.
    """
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    middle, low, high = mean(logs)
    return Bounded(math.exp(middle), math.exp(low), math.exp(high))


def _reach(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    t = _T_95[min(len(values) - 2, len(_T_95) - 1)]
    return t * statistics.stdev(values) / math.sqrt(len(values))
