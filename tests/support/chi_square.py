"""Pearson's chi-square test of drawn tokens against the distribution that they should have."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import NormalDist

_LEAST_EXPECTED = 10.0  # rarer tokens share one cell, as the statistic's distribution asks


def tempered(
    logprobs: Mapping[int, float], allowed: Iterable[int], temperature: float = 1.0
) -> dict[int, float]:
    """Return what sampling should draw: the softmax of the allowed tokens' log-probabilities."""
    weights = {token: math.exp(logprobs[token] / temperature) for token in allowed}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def excess(drawn: Iterable[int], expected: Mapping[int, float], alpha: float) -> float:
    """Return the statistic over its quantile at 1 - alpha: above 1, the draws are not of this distribution.

    The quantile of k degrees of freedom is Wilson and Hilferty's, k (1 - 2 / 9k + z sqrt(2 / 9k))^3 with z
    the normal distribution's: right within 1 % from k = 20 on. A token of no probability is infinitely off.
    """
    counts = Counter(drawn)
    if not counts.keys() <= expected.keys():
        return math.inf
    draws = counts.total()
    common = [token for token in expected if draws * expected[token] >= _LEAST_EXPECTED]
    cells = [(counts[token], draws * expected[token]) for token in common]
    seen, wanted = (sum(column) for column in zip(*cells, strict=True))
    if draws - wanted >= _LEAST_EXPECTED:
        cells.append((draws - seen, draws - wanted))
    freedom = len(cells) - 1
    spread = 2 / (9 * freedom)
    z = NormalDist().inv_cdf(1 - alpha)
    quantile = freedom * (1 - spread + z * math.sqrt(spread)) ** 3
    return sum((count - want) ** 2 / want for count, want in cells) / quantile
