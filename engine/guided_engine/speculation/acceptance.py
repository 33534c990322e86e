"""How many tokens a step of a sequence yields, by the number of its draft tokens."""

import math
from collections.abc import Mapping
from typing import Final

# Of the variance of one sequence's step, what a second adds to that of the share: 0.11 ** 2 in a minute, of a
# half. A share near 0 or 1 moves by less.
_DRIFT_A_SECOND: Final = 8e-4
_MOST: Final = 0.4
_LEAST_SPREAD: Final = 0.02  # of one sequence's step, where all or nothing is accepted


class Acceptance:
    """The share of sequences' steps in which the draft token at each position was accepted.

    Texts change: what was seen counts for less and less, and a position that no step tries becomes unknown.

    Parameters
    ----------
    most
        Draft tokens of a step, at most.
    """

    def __init__(self, most: int) -> None:
        self._shares = [0.5 ** (index + 1) for index in range(most)]
        self._variances = [_MOST * _spread(share) for share in self._shares]

    def take(self, drafts: int, accepted: Mapping[int, int], elapsed_s: float) -> None:
        """Count one step.

        Parameters
        ----------
        drafts
            Number of draft tokens that each sequence was given.
        accepted
            Sequences by the number of them that were accepted. One for which none were found, or the grammar
            forbade them all, has 0.
        elapsed_s
            Seconds since the step before.
        """
        sequences = sum(accepted.values())
        for index, known in enumerate(self._variances):
            share = self._shares[index]
            spread = _spread(share)
            variance = min(known + _DRIFT_A_SECOND * elapsed_s * spread, _MOST * spread)
            if sequences and index < drafts:
                taken = sum(number for length, number in accepted.items() if length > index)
                gain = variance / (variance + spread / sequences)
                self._shares[index] += gain * (taken / sequences - share)
                variance -= gain * variance
            self._variances[index] = variance

    def tokens(self, drafts: int) -> float:
        """Return the tokens that a step of a sequence yields, 1 to `drafts` + 1."""
        return 1 + sum(self._shares[:drafts])

    def deviation(self, drafts: int, others: int) -> float:
        """Return the standard deviation of the logarithm of `tokens` of one number of drafts by another's."""
        fewer, more = sorted((drafts, others))
        # Together: where the first is accepted more often, so are those after it.
        return sum(map(math.sqrt, self._variances[fewer:more])) / self.tokens(more)


def _spread(share: float) -> float:
    """Return the variance of one sequence's step."""
    return max(share * (1 - share), _LEAST_SPREAD)
