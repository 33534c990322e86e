"""White space between the tokens of a JSON text: the same language in both libraries, as a rank masks it.

The judge is Python's own reading of a text: where its strings are, and how long the runs between are.
"""

import functools
import hashlib
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from guided_contract.choices import BOUND, MOST
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar.backend import Threads
from guided_grammar.masks import words as mask_words
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.prepare.jobs import load_of
from guided_sidecar.grammar.worker_messages import Job
from support import tokenizers

SEED = int(os.environ.get("SEED") or 0)
TEXTS = 25  # of each schema
LIBRARIES = ("xgrammar", "guidance")
STRING, ANY = {"type": "string"}, {"x-any": True}
OPEN = {"type": "object", "additionalProperties": STRING}
TREE = {
    "$defs": {
        "t": {"type": "object", "properties": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    },
    "$ref": "#/$defs/t",
}
# schema, an instance
CASES: dict[str, tuple[Any, Any]] = {
    "properties": (
        {"type": "object", "properties": {"a": STRING, "b": {"type": ["number", "null"]}}, "required": ["a"]},
        {"a": '  \n"  \\' + " " * 50, "b": -1.5e3},
    ),
    "optional properties": ({"type": "object", "properties": {"a": STRING, "b": STRING}}, {"b": " "}),
    "others": (OPEN, {"a": "", "x y": "z"}),
    "anything": ({"type": "object", "properties": {"a": ANY}}, {"a": {"b": [1, "x", [], {}], "c": True}}),
    "items": (
        {"type": "array", "items": {"type": "array", "items": {"enum": [1, "a b", None]}}},
        [[1], [], ["a b"]],
    ),
    "first items": (
        {"type": "array", "prefixItems": [STRING, {"type": "boolean"}], "items": False},
        ["", True],
    ),
    "nothing within": ({"type": "object", "properties": {}, "additionalProperties": False}, {}),
    "bounded strings": (
        {"type": "object", "properties": {"a": {**STRING, "maxLength": 9}}},
        {"a": "  é  ü\t"},
    ),
    "alternatives": ({"anyOf": [{"type": "array", "items": STRING}, OPEN]}, ["a", "b"]),
    "itself": (TREE, {"t": [{"t": []}, {}]}),
}


class Rank:
    """A worker that compiles, and a rank that loads what it makes."""

    def __init__(self) -> None:
        self.words = tokenizers.vocabulary()
        self.tokens: list[bytes] = self.words.tokens
        backends = Backends(self.words, Threads(compile=2))
        self._compiler = Compiler(backends, self.words)
        self._loaded_grammars = LoadedGrammars(backends)
        self.loaded = functools.cache(self._loaded)
        self._beginning: dict[int, list[int]] = {}
        for token, text in enumerate(self.tokens):
            if text and token not in (tokenizers.BOS, tokenizers.EOS):
                self._beginning.setdefault(text[0], []).append(token)

    def _loaded(self, backend: str, whitespace: Any, kind: Any, spec: str) -> Callable[[], Matcher]:
        most = MOST[whitespace]
        key = hashlib.sha256(f"{backend}{whitespace}{spec}".encode()).hexdigest()
        names: Any = [backend]
        job = Job(
            key=key, kind=kind, spec=spec, backends=names, whitespace=most, timeout_s=60, memory_bytes=1 << 40
        )
        done = self._compiler.run(job)
        assert not self._loaded_grammars.load(load_of(key, done)).error
        return lambda: self._loaded_grammars.matcher(key, [tokenizers.EOS])

    def drawn_tokens(self, text: bytes, chance: random.Random) -> list[int]:
        """Return a text in tokens that are drawn from those that fit."""
        tokens, at = [], 0
        while at < len(text):
            tokens.append(chance.choice(self.fitting(text, at)))
            at += len(self.tokens[tokens[-1]])
        return tokens

    def fitting(self, text: bytes, at: int) -> list[int]:
        """Return the tokens with which a text may go on."""
        return [token for token in self._beginning[text[at]] if text.startswith(self.tokens[token], at)]


@pytest.fixture(scope="module")
def rank() -> Rank:
    return Rank()


def spaced(value: Any, most: int, chance: random.Random) -> str:
    """Return an instance with white space between its tokens, now and then one more than `most`."""
    likely = [length for length in (0, 0, 1, 2, most - 1, most) if 0 <= length <= most]
    runs: Iterator[str] = (
        "".join(chance.choices(" \t\n\r", k=max(0, chance.choice((*likely * 9, most + 1, most * 2 + 1)))))
        for _ in itertools.count()
    )
    return "".join(
        part + (next(runs) if number < len(found) - 1 else "")
        for found in [
            re.findall(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^{}\[\],:"\s]+', json.dumps(value, ensure_ascii=False))
        ]
        for number, part in enumerate(found)
    )


def longest_run(text: str) -> int:
    """Return the longest run of white space outside of strings."""
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    return max(map(len, re.findall(r"[ \t\n\r]+", outside)), default=0)


def accepts(matcher: Matcher, tokens: list[int], width: int) -> bool:
    """Return whether a text is taken; a mask never allows what is not.

    It may allow less: where one text alone can follow, llguidance's has one way of writing it in tokens.
    """
    row: Any = np.empty((1, mask_words(width)), dtype=np.int32)
    for token in tokens:
        matcher.fill(row, 0)
        is_valid = matcher.valid_prefix([token]) == 1
        assert is_valid or not row[0, token >> 5] >> (token & 31) & 1
        if not is_valid:
            return False
        assert matcher.accept([token])
    return matcher.accept([tokenizers.EOS]) and matcher.is_terminated()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("whitespace", MOST)
def test_both_libraries_take_the_same_white_space(rank: Rank, whitespace: Any, name: str) -> None:
    schema, value = CASES[name]
    spec = json.dumps(schema).replace(json.dumps(ANY), "{}")
    most = MOST[whitespace]
    chance = random.Random(f"{SEED}{whitespace}{name}")
    taken = 0
    for _ in range(TEXTS):
        text = spaced(value, BOUND if most is None else most, chance)
        expected = most is None or longest_run(text) <= most
        tokens = rank.drawn_tokens(text.encode(), chance)
        for library in LIBRARIES:
            matcher = rank.loaded(library, whitespace, "json", spec)()
            assert accepts(matcher, tokens, rank.words.vocab_size) == expected, (SEED, library, text)
        taken += expected
    assert taken > 0
    assert taken < TEXTS or most is None or name == "nothing within"


SCHEMA, VALUE = CASES["anything"]
OLD = {"structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}], "triggers": ["<a"]}
BEGIN = "<a>" + " " * (BOUND + 9)
NEW = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<a"],
        "tags": [
            {
                "type": "tag",
                "begin": BEGIN,
                "content": {"type": "json_schema", "json_schema": SCHEMA},
                "end": "</a>",
            }
        ],
    },
}


def takes(rank: Rank, matcher: Matcher, text: bytes, chance: random.Random) -> bool:
    """Return whether a text can be written in tokens that the masks allow, drawn among those that fit."""
    row: Any = np.empty((1, mask_words(rank.words.vocab_size)), dtype=np.int32)
    at = 0
    while at < len(text):
        matcher.fill(row, 0)
        fits = [token for token in rank.fitting(text, at) if row[0, token >> 5] >> (token & 31) & 1]
        if not fits:
            return False
        token = chance.choice(fits)
        assert matcher.accept([token])
        at += len(rank.tokens[token])
    return True


@pytest.mark.parametrize("whitespace", MOST)
@pytest.mark.parametrize(
    ("library", "tag", "begin"),
    [("xgrammar", OLD, "<a>"), ("guidance", OLD, "<a>"), ("xgrammar", NEW, BEGIN)],
    ids=["xgrammar", "guidance", "xgrammar new form"],
)
def test_so_it_is_in_structural_tags(rank: Rank, library: str, tag: Any, begin: str, whitespace: Any) -> None:
    """There Compact is as Flexible, and llguidance has blanks alone. Free text and a tag's own stay."""
    spec = json.dumps(tag).replace(json.dumps(ANY), "{}")
    chance = random.Random(f"{SEED}{library}{begin}{whitespace}")
    taken = 0
    for _ in range(TEXTS):
        inner = spaced(VALUE, BOUND, chance)
        if library == "guidance" and chance.random() < 0.8:
            inner = re.sub(r"[\t\n\r]", " ", inner)
        is_short = whitespace == "Unbounded" or longest_run(inner) <= BOUND
        expected = is_short and (library != "guidance" or re.search(r"[\t\n\r]", inner) is None)
        text = f"free{' ' * BOUND * 2} {begin}{inner}</a>{' ' * BOUND * 2}text".encode()
        matcher = rank.loaded(library, whitespace, "structural_tag", spec)()
        assert takes(rank, matcher, text, chance) == expected, (SEED, library, text)
        taken += expected
    assert taken > 0
    assert taken < TEXTS or whitespace == "Unbounded"
