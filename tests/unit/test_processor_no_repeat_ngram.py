"""No n-gram twice, judged by transformers' own processor."""

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pytest
import torch
from transformers import NoRepeatNGramLogitsProcessor

from guided_engine.processors.edits import NoTokenError
from guided_engine.processors.interface import Context
from guided_engine.processors.no_repeat_ngram import NoRepeatNgram
from guided_engine.processors.registry import FactoryError
from guided_engine.testing import Harness
from support import processor_rules
from support.token_walks import Judge, Logits, walk

VOCAB: Final = 24
PARAMS: Final[list[dict[str, Any]]] = [
    {},
    {"size": 1},
    {"size": 2, "include_prompt": True},
    {"size": 2, "exempt": [1, 3]},
    {"size": 4, "penalty": 7.25, "include_prompt": True},
    {"size": 1, "penalty": 0.1, "exempt": [0]},
]


def context(vocab_size: int = VOCAB, *, stop: Collection[int] = ()) -> Context:
    return Context(vocab_size=vocab_size, stop_tokens=frozenset(stop))


def of_transformers(params: dict[str, Any], stop: Collection[int] = ()) -> Judge:
    """Return transformers' processor, with what it does not have: a penalty, exempt tokens."""
    forbids = NoRepeatNGramLogitsProcessor(params.get("size", 3))
    penalty = params.get("penalty")

    def judge(prompt: list[int], output: list[int], logits: Logits) -> Logits:
        text = [*(prompt if params.get("include_prompt") else ()), *output]
        [judged] = forbids(torch.tensor([text], dtype=torch.long), torch.from_numpy(logits)[None])
        for token in judged.isneginf().nonzero().flatten().tolist():
            if token not in {*params.get("exempt", ()), *stop}:
                logits[token] = -np.inf if penalty is None else logits[token] - np.float32(penalty)
        return logits

    return judge


@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize(("alphabet", "seed"), [(1, 0), (3, 1), (8, 2)])
def test_rows_are_what_transformers_makes_of_them(params: dict[str, Any], alphabet: int, seed: int) -> None:
    harness = Harness(NoRepeatNgram, params, context(stop=[2]))
    judge = of_transformers(params, stop={2, 5})
    changed = walk(harness, judge, seed=seed, alphabet=alphabet, stop_tokens=frozenset({2, 5}))
    assert changed or (alphabet == 1 and 0 in params.get("exempt", ()))


def test_a_request_sets_what_it_is_like() -> None:
    harness = Harness(NoRepeatNgram, {"size": 4}, context())
    [row] = harness.sequence([5, 6, 5], params={"size": 2, "penalty": 3, "include_prompt": True}).rows()
    assert {token: row[token] for token in np.flatnonzero(row).tolist()} == {6: -3.0}


def test_a_ban_can_leave_no_token_and_a_penalty_cannot() -> None:
    for params, is_left in (({"size": 1}, False), ({"size": 1, "penalty": 1e30}, True)):
        sequence = Harness(NoRepeatNgram, params, context(3)).sequence()
        sequence.accept(0, 1, 2)
        if is_left:
            assert np.isfinite(sequence.rows()).all()
        else:
            with pytest.raises(NoTokenError):
                sequence.rows()


def test_ids_beyond_the_logits_are_no_fault() -> None:
    """A prompt has them where the model has more embeddings than logits."""
    harness = Harness(NoRepeatNgram, {"size": 2, "include_prompt": True}, context())
    [row] = harness.sequence([5, 1000, 5, 6, 5]).rows()
    assert np.flatnonzero(np.isneginf(row)).tolist() == [6]


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"size": 0}, "size"),
        ({"penalty": 0}, "penalty"),
        ({"exempt": [VOCAB]}, f"exempt must be ids below {VOCAB}, not {VOCAB}"),
        ({"colour": 1}, "colour"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params: dict[str, Any], why: str) -> None:
    with pytest.raises(FactoryError, match=why):
        Harness(NoRepeatNgram, params, context())


@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_it_keeps_the_rules_of_the_interface(params: dict[str, Any], seed: int) -> None:
    of = context(stop=[2])
    processor_rules.check(NoRepeatNgram, params, of, tokens=range(5), steps=20, seed=seed)
