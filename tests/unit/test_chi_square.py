"""The test of distributions that the engine's tests use: it knows a fair die from a loaded one."""

import random

import pytest

from support import chi_square

FACES = dict.fromkeys(range(20), 0.05)


def rolled(weights: list[float]) -> list[int]:
    return random.Random(1).choices(range(20), weights, k=20_000)


def test_fair_dice_pass_and_loaded_ones_do_not() -> None:
    assert chi_square.excess(rolled([1.0] * 20), FACES, 1e-4) < 1
    assert chi_square.excess(rolled([1.2] + [1.0] * 19), FACES, 1e-4) > 1


def test_a_token_of_no_probability_is_infinitely_off() -> None:
    assert chi_square.excess([0, 99], FACES, 1e-4) == float("inf")


@pytest.mark.parametrize(("freedom", "exact"), [(20, 52.386), (100, 161.319)])
def test_the_quantile_is_the_tables(freedom: int, exact: float) -> None:
    cells = freedom + 1
    off = [0] * 1000 + [n for n in range(1, cells) for _ in range(1000)] + [0] * 500
    expected = dict.fromkeys(range(cells), 1 / cells)
    want = len(off) / cells
    statistic = (1500 - want) ** 2 / want + freedom * (1000 - want) ** 2 / want
    assert statistic / chi_square.excess(off, expected, 1e-4) == pytest.approx(exact, rel=0.01)


def test_temperature_and_grammar_make_the_distribution() -> None:
    logprobs = {0: -1.0, 1: -2.0, 2: -0.1}
    assert chi_square.tempered(logprobs, [0, 1]) == pytest.approx({0: 0.7310586, 1: 0.2689414})
    assert chi_square.tempered(logprobs, [0, 1], 2.0) == pytest.approx({0: 0.6224593, 1: 0.3775407})
