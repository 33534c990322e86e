"""White space between the tokens of a JSON text: the same language in both libraries, as a rank masks it.

The judge is Python's own reading of a text: where its strings are, and how long the runs between are.
"""

import functools
import itertools
import json
import os
import random
import re
from typing import Any

import pytest

from guided_contract.backends import NAMES
from guided_contract.choices import BOUND, MOST
from guided_grammar.matching import Matcher
from support.worker_and_rank import EOS, WorkerAndRank

SEED = int(os.environ.get("SEED") or 0)
TEXTS = 15  # of each schema
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


@functools.cache
def beginning(served: WorkerAndRank, byte: int) -> list[int]:
    """Return the tokens of text that begin with a byte."""
    return [token for token, text in enumerate(served.tokens) if text[:1] == bytes([byte]) and token > EOS]


def fitting(served: WorkerAndRank, text: bytes) -> list[int]:
    """Return the tokens with which a text may begin."""
    return [token for token in beginning(served, text[0]) if text.startswith(served.tokens[token])]


def drawn_tokens(served: WorkerAndRank, text: bytes, chance: random.Random) -> list[int]:
    """Return a text in tokens that are drawn from those that fit."""
    tokens: list[int] = []
    while text:
        tokens.append(chance.choice(fitting(served, text)))
        text = text.removeprefix(served.tokens[tokens[-1]])
    return tokens


def spaced(value: Any, most: int, chance: random.Random) -> str:
    """Return an instance with white space between its tokens, now and then one more than `most`."""
    likely = [length for length in (0, 0, 1, 2, most - 1, most) if 0 <= length <= most]
    runs = (
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


def accepts(served: WorkerAndRank, matcher: Matcher, tokens: list[int]) -> bool:
    """Return whether a text is taken; a mask never allows what is not.

    It may allow less: where one text alone can follow, llguidance's has one way of writing it in tokens.
    """
    for token in tokens:
        is_valid = matcher.valid_prefix([token]) == 1
        assert is_valid or not served.allowed(matcher)[token]
        if not is_valid:
            return False
        assert matcher.accept([token])
    return matcher.accept([EOS]) and matcher.is_terminated()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("whitespace", MOST)
def test_both_libraries_take_the_same_white_space(served: WorkerAndRank, whitespace: Any, name: str) -> None:
    schema, value = CASES[name]
    spec = json.dumps(schema).replace(json.dumps(ANY), "{}")
    most = MOST[whitespace]
    chance = random.Random(f"{SEED}{whitespace}{name}")
    made = [served.matchers("json", spec, backend, whitespace=most) for backend in NAMES.values()]
    taken = 0
    for _ in range(TEXTS):
        text = spaced(value, BOUND if most is None else most, chance)
        expected = most is None or longest_run(text) <= most
        tokens = drawn_tokens(served, text.encode(), chance)
        for matcher in made:
            assert accepts(served, matcher(), tokens) == expected, (SEED, text)
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


def takes(served: WorkerAndRank, matcher: Matcher, text: bytes, chance: random.Random) -> bool:
    """Return whether a text can be written in tokens that the masks allow, drawn among those that fit."""
    while text:
        allowed = served.allowed(matcher)
        fits = [token for token in fitting(served, text) if allowed[token]]
        if not fits:
            return False
        token = chance.choice(fits)
        assert matcher.accept([token])
        text = text.removeprefix(served.tokens[token])
    return True


@pytest.mark.parametrize("whitespace", MOST)
@pytest.mark.parametrize(
    ("library", "tag", "begin"),
    [("xgrammar", OLD, "<a>"), ("guidance", OLD, "<a>"), ("xgrammar", NEW, BEGIN)],
    ids=["xgrammar", "guidance", "xgrammar new form"],
)
def test_so_it_is_in_structural_tags(
    served: WorkerAndRank, library: Any, tag: Any, begin: str, whitespace: Any
) -> None:
    """There Compact is as Flexible, and llguidance has blanks alone. Free text and a tag's own stay."""
    spec = json.dumps(tag).replace(json.dumps(ANY), "{}")
    chance = random.Random(f"{SEED}{library}{begin}{whitespace}")
    matchers = served.matchers("structural_tag", spec, library, whitespace=MOST[whitespace])
    taken = 0
    for _ in range(TEXTS):
        inner = spaced(VALUE, BOUND, chance)
        if library == "guidance" and chance.random() < 0.8:
            inner = re.sub(r"[\t\n\r]", " ", inner)
        is_short = whitespace == "Unbounded" or longest_run(inner) <= BOUND
        expected = is_short and (library != "guidance" or re.search(r"[\t\n\r]", inner) is None)
        text = f"free{' ' * BOUND * 2} {begin}{inner}</a>{' ' * BOUND * 2}text".encode()
        assert takes(served, matchers(), text, chance) == expected, (SEED, library, text)
        taken += expected
    assert taken > 0
    assert taken < TEXTS or whitespace == "Unbounded"
