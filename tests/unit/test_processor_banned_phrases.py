"""Banned phrases: plain search in the text's bytes, or `re` where case is ignored, judges each token."""

import random
import re
from collections.abc import Callable

import numpy as np
import pytest

from guided_engine.processors.banned_phrases import BannedPhrases
from guided_engine.processors.edits import MOST_IDS
from guided_engine.processors.interface import Context
from guided_engine.processors.registry import FactoryError, ProcessorError
from guided_engine.testing import Harness, Sequence, check_factory
from support.token_walks import logits_of

# Each alone, and some within, behind or across others.
LISTS: dict[str, tuple[list[str], bool]] = {
    "one": (["banana"], False),
    "within each other": (["banana", "nan", "anab", "bananab"], False),
    "overlapping themselves": (["aaaa", "abab"], False),
    "many bytes a character": (["né", "漢字", "🙂🙂", "e\u0301"], False),
    "white space": ([" ban", "a\n"], False),
    "one character": (["x", "é"], False),
    "any case": (["Banana", "ÉTÉ", "Straße", "ΣΟΦΟΣ", "kiss"], True),
    "any case of other lengths": (["ⱥk", "İi", "kk", "ſs"], True),  # noqa: RUF001 - look-alikes are meant
}
_PIECES = (
    *("b", "an", "anan", "ana", "nab", "aa", "aab", "ba", "n", " b", "\n", "x", "xx", "bananabanana"),
    *("字漢", "🙂", "é", "été", "RASSE", "ss", "ΣΟ", "φο", "ς", "σ"),  # noqa: RUF001 - as above
    *("\N{KELVIN SIGN}", "K", "kisskiss", "i", "ı", "ſ", "Ⱥ"),  # noqa: RUF001 - as above
)
SPECIAL = 0  # a token without text


def vocabulary(rng: random.Random, phrases: list[str]) -> list[bytes]:
    """Return single bytes, and tokens that cut, cross and hold the phrases, characters too."""
    texts = {bytes((byte,)) for byte in range(256)} | {piece.encode() for piece in _PIECES}
    for _ in range(150):
        some = "".join(rng.choices([*phrases, *_PIECES], k=3))
        some = rng.choice((some, some.upper(), some.lower(), some.title()))
        low = rng.randrange(len(some.encode()))
        texts.add(some.encode()[low : low + rng.randint(1, 9)])
    return [b"", *sorted(texts)]


def judge(phrases: list[str], *, ignore_case: bool) -> Callable[[bytes], bool]:
    """Return what says whether a text has one of the phrases."""
    if not ignore_case:
        return lambda text: any(phrase.encode() in text for phrase in phrases)
    pattern = re.compile("|".join(map(re.escape, phrases)), re.IGNORECASE)
    return lambda text: pattern.search(text.decode(errors="replace")) is not None


def forbidden(row: np.ndarray) -> set[int]:
    assert np.isin(row, (0, -np.inf)).all()
    return set(np.flatnonzero(row).tolist())


def changed(sequence: Sequence, drafts: list[int], noise: np.random.Generator, place: int) -> set[int]:
    """Return what is forbidden in a row of what a bfloat16 model gives; the others stay as they are."""
    logits = logits_of(noise, 1 + len(drafts), sequence.rows().shape[1], is_bfloat16=True)
    row = sequence.rows(logits, drafts)[place]
    assert np.isin(row, -np.inf).sum() == (row != logits[place]).sum()
    return set(np.flatnonzero(np.isneginf(row)).tolist())


def context(tokens: list[bytes]) -> Context:
    return Context(vocab_size=len(tokens), token_bytes=tokens)


def started(phrases: list[str], tokens: list[bytes], *, ignore_case: bool = False) -> Sequence:
    params = {"phrases": phrases, "ignore_case": ignore_case}
    return Harness(BannedPhrases, params, context(tokens)).sequence()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", LISTS)
def test_just_the_tokens_that_complete_a_phrase_are_forbidden(case: str, seed: int) -> None:
    phrases, ignore_case = LISTS[case]
    rng = random.Random(f"{case} {seed}")
    tokens = vocabulary(rng, phrases)
    has_phrase = judge(phrases, ignore_case=ignore_case)
    sequence = started(phrases, tokens, ignore_case=ignore_case)
    # What the walk spells, one behind the other: phrases and what nearly is one, so that it is often stopped.
    liked = [text.encode() for text in [*phrases, *map(str.swapcase, phrases), *_PIECES]]
    text, wish, stopped = b"", b"", 0
    noise = np.random.default_rng(seed)
    for _ in range(25):
        drafts: list[int] = []
        ahead, hoped = text, wish
        for place in range(rng.randint(1, 4)):
            wrong = changed(sequence, drafts, noise, place)
            really = {token for token, piece in enumerate(tokens) if has_phrase(ahead[-60:] + piece)}
            assert wrong == really, (seed, ahead, [tokens[token] for token in wrong ^ really])
            stopped += len(wrong) > 0
            hoped = hoped or rng.choice(liked)
            fitting = [token for token, piece in enumerate(tokens) if piece and hoped.startswith(piece)]
            token = rng.choice([token for token in fitting if token not in wrong] or [SPECIAL])
            drafts.append(token)
            ahead += tokens[token]
            hoped = hoped[len(tokens[token]) :] if token != SPECIAL else b""
        kept = drafts[: rng.randint(1, len(drafts))]
        sequence.accept(*kept)
        text += b"".join(tokens[token] for token in kept)
        wish = hoped if kept == drafts else b""
        if rng.random() < 0.2:
            sequence.preempt()
    assert not has_phrase(text)
    assert stopped


@pytest.mark.parametrize(("seed", "case"), list(enumerate(LISTS)))
def test_the_rules_of_factories_are_kept(case: str, seed: int) -> None:
    phrases, ignore_case = LISTS[case]
    tokens = vocabulary(random.Random(seed), phrases)
    likely = [token for token, text in enumerate(tokens) if any(text in one.encode() for one in phrases)]
    params = {"phrases": phrases, "ignore_case": ignore_case}
    check_factory(
        BannedPhrases, params, context(tokens), tokens=likely, steps=15, seed=seed, second_process=not seed
    )


def test_a_phrase_that_begins_in_the_prompt_may_be_completed() -> None:
    tokens = [b"", b"ban", b"ana"]
    harness = Harness(BannedPhrases, {"phrases": ["banana"]}, context(tokens))
    sequence = harness.sequence([1])
    assert forbidden(sequence.rows()[0]) == set()
    sequence.accept(1)
    assert forbidden(sequence.rows()[0]) == {2}


def test_a_special_token_between_its_parts_hides_no_phrase() -> None:
    sequence = started(["banana"], [b"", b"ban", b"ana"])
    sequence.accept(1, SPECIAL, SPECIAL)
    assert forbidden(sequence.rows()[0]) == {2}


def test_more_tokens_than_edits_may_have_are_forbidden() -> None:
    tokens = [b"", b"b", *(f"a{number}".encode() for number in range(2 * MOST_IDS))]
    sequence = started(["ba"], tokens)
    sequence.accept(1)
    assert forbidden(sequence.rows()[0]) == set(range(2, len(tokens)))


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({}, "phrases"),
        ({"phrases": []}, "length >= 1"),
        ({"phrases": [""]}, "length >= 1"),
        ({"phrases": ["a" * 101]}, "length <= 100"),
        ({"phrases": ["a"] * 1001}, "length <= 1000"),
        ({"phrases": ["a\ud83d"]}, r"the phrase 'a\\ud83d' has half of a surrogate pair"),
    ],
)
def test_what_is_no_list_of_phrases_is_refused(params: dict[str, list[str]], why: str) -> None:
    with pytest.raises(FactoryError, match=why):
        Harness(BannedPhrases, params, context([b"a"]))


def test_without_the_text_of_tokens_the_engine_does_not_start() -> None:
    with pytest.raises(FactoryError, match="text of the model's tokens is not known"):
        Harness(BannedPhrases, {"phrases": ["a"]})


def test_a_request_sets_no_phrases() -> None:
    harness = Harness(BannedPhrases, {"phrases": ["a"]}, context([b"a"]))
    with pytest.raises(ProcessorError, match="a request may set nothing"):
        harness.sequence(params={"phrases": ["b"]})
