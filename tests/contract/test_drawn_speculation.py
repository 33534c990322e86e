"""What the soak of speculation draws: each seed meets what `make soak-speculation` then asks after."""

import pytest

from support.matrix_drawn import FEW, FILLING, LIVE, drawn
from support.matrix_engine import MAX_MODEL_LEN
from support.matrix_requests import encoded
from support.matrix_soak import compared, missed

SEEDS = range(72, 96)
BLOCK = 32  # tokens


@pytest.mark.parametrize("seed", SEEDS)
def test_each_seed_has_processors_and_a_request_as_long_as_the_model_takes(seed: int) -> None:
    chosen = drawn(seed)
    assert any(chosen.processors)
    assert len(chosen.live) == LIVE
    asked = [*chosen.requests, *(one for one, _ in chosen.doomed)]
    assert all(one.params.get("min_tokens", 0) <= one.max_tokens for one in asked)  # or vLLM refuses it
    last = chosen.requests[-1]
    assert MAX_MODEL_LEN - last.max_tokens < len(encoded(last.prompt)) < MAX_MODEL_LEN
    if chosen.blocks == FEW:
        filling = chosen.requests[:FILLING]
        assert {-(-len(encoded(one.prompt)) // BLOCK) for one in filling} == {(FEW - 1) // FILLING}
        assert all("ignore_eos" in one.params and one.max_tokens > BLOCK for one in filling)


def test_what_an_engine_did_not_meet_is_told() -> None:
    chosen = next(one for one in map(drawn, SEEDS) if one.blocks == FEW)
    calm = [{"preempted": 0, "tokens": 90} for _ in chosen.requests]
    assert missed(chosen, {"cut": 0, "drafts": calm}) == [
        "no step left drafts out",
        "no request reached max_model_len",
        "no request was preempted",
    ]
    met = [*calm[:-1], {"preempted": 1, "tokens": MAX_MODEL_LEN}]
    assert missed(chosen, {"cut": 9, "drafts": met}) == []


def test_drafts_are_compared_but_after_a_stop_string() -> None:
    chosen = next(one for one in map(drawn, SEEDS) if any("stop" in each.params for each in one.requests))
    calm = {"preempted": 0, "tokens": 90, "proposed": [3], "accepted": [1], "ranks": [[(3, 0)]]}
    more = calm | {"ranks": [[(3, 0), (3, 3)]]}
    for at, request in enumerate(chosen.requests):
        other = [more if one == at else calm for one in range(len(chosen.requests))]
        differing, _ = compared(chosen, 3, other, [calm] * len(chosen.requests))
        assert len(differing) == ("stop" not in request.params)
