"""The shipped processors: DRY judged by its published description, n-grams by transformers; and closing."""

import tracemalloc
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import torch
from transformers import NoRepeatNGramLogitsProcessor

from guided_engine.processors import repeats
from guided_engine.processors.closing import Closing
from guided_engine.processors.dry import Dry, DryParams
from guided_engine.processors.edits import NoTokenError
from guided_engine.processors.interface import Context, SequenceInfo
from guided_engine.processors.no_repeat_ngram import NoRepeatNgram
from guided_engine.processors.registry import FactoryError, ProcessorError
from guided_engine.testing import Harness
from support import processor_rules
from support.token_walks import Judge, Logits, dry, walk

VOCAB = 24
A, B, C, X = range(1, 5)
DRY: list[dict[str, Any]] = [
    {},
    {"allowed_length": 1, "multiplier": 2.5, "base": 1.0},
    {"allowed_length": 3, "longest_match": 3},
    {"longest_match": 5, "last_n": 12, "base": 4.0},
    {"allowed_length": 2, "last_n": 3},
    {"allowed_length": 4, "longest_match": 255, "base": 10.0, "multiplier": 1000.0},
]
NGRAM: list[dict[str, Any]] = [
    {},
    {"size": 1},
    {"size": 2, "include_prompt": True},
    {"size": 2, "exempt": [1, 3]},
    {"size": 4, "penalty": 7.25, "include_prompt": True},
    {"size": 1, "penalty": 0.1, "exempt": [0]},
]
# For closing: a vocabulary of JSON.
JSON = [
    *(b"", b'"', b"{", b"}", b"]", b'"}', b"}}", b"a", b"[", b'""', b",", b":", b" ", b"\n", b"\\", b' "'),
    *(b"()", b'a"', b"{}", b'",', b")", b"1", b"true", "é".encode()),
]
EOS = 0


def context(
    texts: dict[int, bytes] | None = None, *, stop: Collection[int] = (), size: int = VOCAB
) -> Context:
    words = [(texts or {}).get(token, b"") for token in range(size)]
    return Context(vocab_size=size, token_bytes=words, stop_tokens=frozenset(stop))


OF_JSON = context(dict(enumerate(JSON)), stop=[EOS])


def changes(harness: Harness, text: list[int], **params: Any) -> dict[int, float]:
    [row] = harness.sequence(text, params=params).rows()
    return {token: float(row[token]) for token in np.flatnonzero(row).tolist()}


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


@pytest.mark.parametrize("params", DRY, ids=str)
@pytest.mark.parametrize(("alphabet", "seed"), [(1, 1), (3, 2), (3, 3), (8, 4)])
def test_dry_is_what_the_description_makes_of_it(
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
    harness = Harness(Dry, {"allowed_length": 1}, context(texts, stop=[1]))
    judge = dry(DryParams(allowed_length=1), breakers={1, 2, 3, 4, 5})
    assert walk(harness, judge, seed=seed, alphabet=9, stop_tokens=frozenset({1, 2}))


@pytest.mark.parametrize("params", NGRAM, ids=str)
@pytest.mark.parametrize(("alphabet", "seed"), [(1, 0), (3, 1), (8, 2)])
def test_ngrams_are_what_transformers_makes_of_them(params: dict[str, Any], alphabet: int, seed: int) -> None:
    harness = Harness(NoRepeatNgram, params, context(stop=[2]))
    judge = of_transformers(params, stop={2, 5})
    changed = walk(harness, judge, seed=seed, alphabet=alphabet, stop_tokens=frozenset({2, 5}))
    assert changed or (alphabet == 1 and 0 in params.get("exempt", ()))


def test_a_request_sets_what_they_are_like_but_not_the_breakers() -> None:
    harness = Harness(Dry, {}, context())
    text = [A, B, C, X, A, B, C]
    assert changes(harness, text) == pytest.approx({X: -0.8 * 1.75})
    assert changes(harness, text, multiplier=3, base=2, allowed_length=1) == {X: -12.0}
    assert changes(harness, text, last_n=4) == changes(harness, text, multiplier=0) == {}
    assert changes(harness, text, longest_match=2) == pytest.approx({X: -0.8})
    with pytest.raises(ProcessorError, match=r"set allowed_length, base, last_n, longest_match, multiplier$"):
        changes(harness, text, sequence_breakers=[])
    ngram = Harness(NoRepeatNgram, {"size": 4}, context())
    assert changes(ngram, [5, 6, 5], size=2, penalty=3, include_prompt=True) == {6: -3.0}


@pytest.mark.parametrize(
    ("factory", "params", "why"),
    [
        (Dry, {"base": 0.5}, "base"),
        (Dry, {"last_n": 1_000_000}, "last_n"),
        (Dry, {"sequence_breakers": [""]}, "sequence_breakers"),
        (Dry, {"allowed_length": 60}, r"longest_match must be at least allowed_length \(60\)"),
        (Dry, {"last_n": 2}, r"last_n must be more than allowed_length \(2\)"),
        (NoRepeatNgram, {"size": 0}, "size"),
        (NoRepeatNgram, {"penalty": 0}, "penalty"),
        (NoRepeatNgram, {"exempt": [VOCAB]}, f"exempt must be ids below {VOCAB}, not {VOCAB}"),
        (NoRepeatNgram, {"colour": 1}, "colour"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(factory: Any, params: dict[str, Any], why: str) -> None:
    with pytest.raises(FactoryError, match=why):
        Harness(factory, params, context())


def test_ids_beyond_the_logits_are_no_fault() -> None:
    """A prompt has them where the model has more embeddings than logits."""
    dry = Harness(Dry, {}, context())
    assert changes(dry, [A, B, 1000, A, B, C, A, B]) == pytest.approx({C: -0.8})
    ngram = Harness(NoRepeatNgram, {"size": 2, "include_prompt": True}, context())
    assert changes(ngram, [5, 1000, 5, 6, 5]) == {6: -np.inf}


def test_a_ban_can_leave_no_token_and_a_penalty_cannot() -> None:
    for params in ({"size": 1}, {"size": 1, "penalty": 1e30}):
        sequence = Harness(NoRepeatNgram, params, context(size=3)).sequence()
        sequence.accept(0, 1, 2)
        if "penalty" in params:
            assert np.isfinite(sequence.rows()).all()
        else:
            with pytest.raises(NoTokenError):
                sequence.rows()


def test_a_long_sequence_takes_no_more_memory() -> None:
    params = DryParams(last_n=256)
    processor = Dry(params, context()).create(SequenceInfo(params=params))
    assert processor is not None
    tokens = np.random.default_rng(0).integers(0, VOCAB, 3200).tolist()
    sizes = []
    tracemalloc.start()
    for start in range(0, len(tokens), 4):
        processor.prepare([A, B])
        processor.accept(tokens[start : start + 4])
        if start % 400 == 396:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(sizes) < 10_000


def test_closing_begins_within_so_many_tokens_of_the_last_drafts_counted() -> None:
    sequence = Harness(Closing, {"within": 3}, OF_JSON).sequence(max_tokens=6)
    sequence.accept(7)
    # Of six tokens the fourth to the sixth; the first has come.
    assert [bool(row.any()) for row in sequence.rows(drafts=[7, 7, 7])] == [False, False, True, True]
    sequence.accept(7, 7)
    assert sequence.rows()[0].argmax() == EOS


def test_without_the_text_of_tokens_the_engine_does_not_start() -> None:
    with pytest.raises(FactoryError, match="text of the model's tokens is unknown"):
        Harness(Closing)


@pytest.mark.parametrize(
    ("text", "allowed", "liked"),
    [
        (b'{"a', b'" } } } }} a', b'"'),  # a bracket in a string closes nothing
        (b'{"a', b'" "} } a', b'"}'),
        (b'{"a\\"', b'" } a', b'"'),
        (b"{", b'" } a', b"}"),
        (b'{{"a"', b", } }}", b"}}"),
        (b'{"":', b'" "" { 1', b'""'),
        (b'{"":1', b"1 ,", b","),
        (b'{"a"', b": \n", b":"),
        (b'{"":1,', b'" \n', b'"'),
    ],
)
def test_what_closes_most_is_liked_best(text: bytes, allowed: bytes, liked: bytes) -> None:
    sequence = Harness(Closing, {"within": 100}, OF_JSON).sequence(max_tokens=100)
    for byte in text:
        sequence.accept(JSON.index(bytes([byte])))
    [row] = sequence.rows()
    among = [token for token, one in enumerate(JSON) if one in allowed.split()]
    assert [JSON[token] for token in among if row[token] == row[among].max()] == [liked]


@pytest.mark.parametrize(
    ("factory", "params"),
    [
        *((Dry, params) for params in DRY),
        *((NoRepeatNgram, params) for params in NGRAM),
        *((Closing, {"within": within}) for within in (1, 20)),
    ],
    ids=str,
)
def test_they_keep_the_rules_of_the_interface(factory: Any, params: dict[str, Any]) -> None:
    closes = factory is Closing
    of = OF_JSON if closes else context({3: b"\n"}, stop=[2])
    tokens = range(len(JSON)) if closes else range(5)
    processor_rules.check(factory, params, of, tokens=tokens, steps=20, max_tokens=30 if closes else None)
