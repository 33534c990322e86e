"""The bound on what two engines' drafts may differ by: chance is within it, a planted difference is not."""

import random

import pytest

from support.matrix_warm import BY_CHANCE, alike, totals, unlike

PLACES = 3
SEED = 1
ACCEPTED = 0.6
FORBIDDEN = 0.2


def drawn(rng: random.Random, steps: int, accepted: float = ACCEPTED) -> dict[str, list[int]]:
    """Return the totals of an engine that has each draft accepted with such odds, if those before it were."""
    found = {name: [0] * PLACES for name in ("accepted", "forbidden")}
    for _ in range(steps):
        for place in range(PLACES):
            if rng.random() >= accepted:
                found["forbidden"][place] += rng.random() < FORBIDDEN / (1 - accepted)
                break
            found["accepted"][place] += 1
    made = [steps + count for count in found["forbidden"]]
    tokens = [steps + sum(found["accepted"])] * PLACES
    return found | {"proposed": [steps] * PLACES, "made": made, "tokens": tokens}


def test_engines_that_draw_by_themselves_stay_within_the_bound() -> None:
    rng = random.Random(SEED)
    differing = [found for _ in range(300) if (found := unlike(drawn(rng, 600), drawn(rng, 600)))]
    assert not differing, f"seed {SEED}"


@pytest.mark.parametrize("name", ["proposed", "accepted", "forbidden"])
@pytest.mark.parametrize("place", range(PLACES))
def test_what_one_position_lost_is_found(name: str, place: int) -> None:
    """As where async scheduling drops a position's drafts, takes none of them, or forbids none."""
    whole, planted = (drawn(random.Random(seed), 600) for seed in (SEED, SEED + 1))
    for lost in ("proposed", "accepted", "forbidden") if name == "proposed" else (name,):
        planted[lost][place] = 0
    found = unlike(planted, whole)
    assert any(one.startswith(f"{name} at position {place}: 0 of ") for one in found)


def test_some_fewer_accepted_drafts_are_found() -> None:
    """The bound has power: of 600 steps, 0.48 accepted instead of 0.6."""
    rng = random.Random(SEED)
    found = [unlike(drawn(rng, 600, ACCEPTED - 0.12), drawn(rng, 600)) for _ in range(100)]
    assert sum(map(bool, found)) > 50, f"seed {SEED}"


def test_more_may_be_forbidden_than_is_proposed() -> None:
    one = {"proposed": [2], "accepted": [1], "forbidden": [9], "made": [11], "tokens": [20]}
    assert not unlike(one, one)
    assert unlike(
        {name: [100 * count for count in counts] for name, counts in one.items()}, one | {"forbidden": [0]}
    )


def test_the_odds_are_the_tables() -> None:
    # The lady tasting tea: 3 of 4 cups, and all.
    assert alike(3, 4, 1, 4) == pytest.approx(34 / 70)
    assert alike(4, 4, 0, 4) == pytest.approx(2 / 70)
    assert alike(0, 0, 0, 0) == 1
    assert alike(0, 700, 300, 700) < BY_CHANCE


def test_totals_are_of_all_requests() -> None:
    one = {"proposed": [3, 1], "accepted": [2, 0], "ranks": [[(3, 1), (1, 1)]], "generated": 5}
    assert totals([one, one]) == {
        "proposed": [4, 2, 2],
        "accepted": [2, 2, 0],
        "forbidden": [2, 0, 2],
        "made": [6, 2, 4],
        "tokens": [10, 10, 10],
    }
