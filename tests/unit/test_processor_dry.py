"""DRY, judged by its published description, done the slow way."""

import tracemalloc
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pytest

from guided_engine.processors import repeats
from guided_engine.processors.dry import Dry, DryParams
from guided_engine.processors.interface import Context, SequenceInfo
from guided_engine.processors.registry import FactoryError, ProcessorError
from guided_engine.testing import Harness
from support import processor_rules
from support.token_walks import dry, walk

A, B, C, X, Y = range(1, 6)
NO_TEXTS: Final[Mapping[int, bytes]] = MappingProxyType({})
PARAMS: Final[list[dict[str, Any]]] = [
    {},
    {"allowed_length": 1, "multiplier": 2.5, "base": 1.0},
    {"allowed_length": 3, "longest_match": 3},
    {"longest_match": 5, "last_n": 12, "base": 4.0},
    {"allowed_length": 2, "last_n": 3},
    {"allowed_length": 4, "longest_match": 255, "base": 10.0, "multiplier": 1000.0},
]


def context(
    vocab_size: int = 24, *, texts: Mapping[int, bytes] = NO_TEXTS, stop: Collection[int] = ()
) -> Context:
    words = [texts.get(token, b"") for token in range(vocab_size)]
    return Context(vocab_size=vocab_size, token_bytes=words, stop_tokens=frozenset(stop))


def penalties(harness: Harness, text: list[int], **params: Any) -> dict[int, float]:
    [row] = harness.sequence(text, params=params).rows()
    return {token: -float(row[token]) for token in np.flatnonzero(row).tolist()}


@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize(("alphabet", "seed"), [(1, 1), (3, 2), (3, 3), (8, 4)])
def test_rows_are_what_the_description_makes_of_them(
    monkeypatch: pytest.MonkeyPatch, params: dict[str, Any], alphabet: int, seed: int
) -> None:
    """Where many places count, some are left out: from the first on for odd seeds."""
    if seed % 2:
        monkeypatch.setattr(repeats, "_MANY", 0)
    harness = Harness(Dry, params, context())
    assert walk(harness, dry(DryParams(**params)), seed=seed, alphabet=alphabet)


@pytest.mark.parametrize("seed", range(3))
def test_breakers_end_a_repeat_and_are_never_penalised(seed: int) -> None:
    """Tokens that contain one of the texts break, and so do stop tokens, the request's own among them."""
    texts = {3: b"\n\n", 4: b"a:", 5: b": ", 6: b"!"}
    harness = Harness(Dry, {"allowed_length": 1}, context(texts=texts, stop=[1]))
    judge = dry(DryParams(allowed_length=1), breakers={1, 2, 3, 4, 5})
    assert walk(harness, judge, seed=seed, alphabet=9, stop_tokens=frozenset({1, 2}))


def test_a_request_sets_what_it_is_like_but_not_the_breakers() -> None:
    harness = Harness(Dry, {}, context())
    text = [A, B, C, X, A, B, C]
    assert penalties(harness, text) == pytest.approx({X: 0.8 * 1.75})
    assert penalties(harness, text, multiplier=3, base=2, allowed_length=1) == {X: 12.0}
    assert penalties(harness, text, last_n=4) == {}
    assert penalties(harness, text, longest_match=2) == pytest.approx({X: 0.8})
    assert penalties(harness, text, multiplier=0) == {}
    with pytest.raises(ProcessorError, match=r"set allowed_length, base, last_n, longest_match, multiplier$"):
        penalties(harness, text, sequence_breakers=[])


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"base": 0.5}, "base"),
        ({"last_n": 1_000_000}, "last_n"),
        ({"sequence_breakers": [""]}, "sequence_breakers"),
        ({"allowed_length": 60}, r"longest_match must be at least allowed_length \(60\)"),
        ({"last_n": 2}, r"last_n must be more than allowed_length \(2\)"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params: dict[str, Any], why: str) -> None:
    with pytest.raises(FactoryError, match=why):
        Harness(Dry, params, context())


def test_ids_beyond_the_logits_are_no_fault() -> None:
    """A prompt has them where the model has more embeddings than logits."""
    assert penalties(Harness(Dry, {}, context()), [A, B, 1000, A, B, C, A, B]) == pytest.approx({C: 0.8})


def test_a_long_sequence_takes_no_more_memory() -> None:
    params = DryParams(last_n=256)
    processor = Dry(params, context()).create(SequenceInfo(params=params))
    assert processor is not None
    tokens = np.random.default_rng(0).integers(0, 24, 3200).tolist()
    sizes = []
    tracemalloc.start()
    for start in range(0, len(tokens), 4):
        processor.prepare([A, B])
        processor.accept(tokens[start : start + 4])
        if start % 400 == 396:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(sizes) < 10_000


@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_it_keeps_the_rules_of_the_interface(params: dict[str, Any], seed: int) -> None:
    of = context(texts={3: b"\n"}, stop=[2])
    processor_rules.check(Dry, params, of, tokens=range(5), steps=20, seed=seed)
