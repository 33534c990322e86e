"""What a step takes at about one batch size, by the number of draft tokens: a small Kalman filter.

Its state is the logarithm of the step's seconds for each number. What changes all of them alike (longer
contexts, a hotter device) is told by any step. What changes one against another becomes uncertain with time,
until steps with that number are seen again: a random walk along the logarithm of a sequence's rows.
"""

import math
from collections.abc import Sequence
from typing import Final

# Variances of logarithms (0.1 ** 2 is 10 percent): what all numbers share; the slope along the logarithm of
# a sequence's rows; what each has of its own, where rows are e times as many.
_COMMON_A_STEP: Final = 0.01**2
_AT_FIRST: Final = (1.0, 0.4**2, 0.15**2)
_A_SECOND: Final = (0.0, 0.1**2 / 60, 0.03**2 / 60)
# Kernels, caches and grammars are new in the first seconds, and steps then take what they never take again:
# what is known ages by so much more each time that it has become e times as old.
_COLD_S: Final = 200.0
_AGE_AT_FIRST_S: Final = 10.0  # at less, all is doubted at once, and nothing is certain enough to choose
_AN_OCTAVE: Final = (1.0, 0.12**2, 0.05**2)  # of twice the batch
_MOST: Final = 0.4**2  # of two numbers whose rows are e times as many, with age
_NOISE: Final = (0.02**2, 0.3**2)  # of one step, at least and at most
_NOISE_AT_FIRST: Final = 0.1**2
_CLIP: Final = 3.0  # standard deviations that a step is taken to be off, at most: others are pauses
_TWICE: Final = 2  # steps in a row that are off by more, to the same side, are what steps take now
# Half way from a device that waits for memory, where rows cost nothing, to one that computes.
_SLOPE: Final = 0.4
_SLOPE_AN_OCTAVE: Final = 0.1  # which a larger batch comes nearer to


class StepTimes:
    """Seconds of a step at about one batch size.

    Parameters
    ----------
    values
        The numbers of draft tokens, ascending.
    index
        Which of them a first step had.
    seconds
        What it took.
    """

    def __init__(self, values: Sequence[int], index: int, seconds: float) -> None:
        self._rows = [math.log(1 + value) for value in values]
        first = math.log(seconds) - _SLOPE * self._rows[index]
        self.log_s = [first + _SLOPE * rows for rows in self._rows]
        self._noise = _NOISE_AT_FIRST
        self._age_s = _AGE_AT_FIRST_S
        self._off = [0] * len(values)
        self._spread = [[0.0] * len(values) for _ in values]
        self._widen(_AT_FIRST)

    def near(self, octaves: float) -> "StepTimes":
        """Return what this says of another batch size: so many octaves larger, or smaller if below 0."""
        other = object.__new__(StepTimes)
        other._rows = self._rows
        other.log_s = self.log_s_near(octaves)
        other._noise = self._noise
        other._off = [0] * len(self._off)
        other._age_s = _AGE_AT_FIRST_S  # a batch size that is met late has its own first graphs, too
        other._spread = [list(row) for row in self._spread]
        other._widen(_AN_OCTAVE, max(octaves**2, 0.1))
        return other

    def log_s_near(self, octaves: float) -> list[float]:
        """Return the logarithms at another batch size, but for what all numbers share."""
        bent = _SLOPE_AN_OCTAVE * octaves
        return [log_s + bent * rows for log_s, rows in zip(self.log_s, self._rows, strict=True)]

    def age(self, elapsed_s: float) -> None:
        """Let so many seconds pass without a step."""
        before_s, self._age_s = self._age_s, self._age_s + elapsed_s
        elapsed_s += _COLD_S * math.log(self._age_s / before_s)
        if self.variance(0, -1) < _MOST * self._rows[-1] ** 2:
            self._widen(_A_SECOND, elapsed_s)

    def take(self, index: int, seconds: float) -> None:
        """Take in a step with the number of drafts at this index."""
        self._widen((_COMMON_A_STEP, 0.0, 0.0))
        spread = self._spread
        total = spread[index][index] + self._noise
        error = math.log(seconds) - self.log_s[index]
        most = _CLIP * math.sqrt(total)
        if self._is_changed(index, error, most):
            spread[index][index] += error**2
            total += error**2
            most = abs(error)
        error = min(max(error, -most), most)
        least_noise, most_noise = _NOISE
        unexplained = error**2 * self._noise / total
        self._noise = min(max(self._noise + 0.02 * (unexplained - self._noise), least_noise), most_noise)
        column = [row[index] for row in spread]
        for row, covariance in enumerate(column):
            gain = covariance / total
            self.log_s[row] += gain * error
            for other, its in enumerate(column):
                spread[row][other] -= gain * its

    def _is_changed(self, index: int, error: float, most: float) -> bool:
        """Return whether steps with this number take something else now: two in a row say so."""
        if abs(error) <= most:
            self._off[index] = 0
            return False
        side = 1 if error > 0 else -1
        self._off[index] = side if self._off[index] * side < 0 else self._off[index] + side
        return abs(self._off[index]) >= _TWICE

    def is_off(self, index: int) -> bool:
        """Return whether the latest step with this number was off by more than noise."""
        return self._off[index] != 0

    def variance(self, one: int, other: int) -> float:
        """Return the variance of the logarithm of the seconds at two indices, one by the other."""
        spread = self._spread
        return max(spread[one][one] + spread[other][other] - 2 * spread[one][other], 0.0)

    def _widen(self, variances: tuple[float, float, float], times: float = 1.0) -> None:
        common, slope, own = (times * variance for variance in variances)
        for row, rows in zip(self._spread, self._rows, strict=True):
            for column, others in enumerate(self._rows):
                row[column] += common + slope * rows * others + own * min(rows, others)
