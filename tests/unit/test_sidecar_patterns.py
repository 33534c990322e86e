"""Patterns that libraries and people write, with lookaround, beside Python's own `re` over drawn texts."""

import random
import re
from collections.abc import Iterator

import pytest

from guided_sidecar.grammar.schema import patterns

COUNT = 3000
SPACES = "\\t-\\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
ECMAS = {"$": r"\Z", ".": "[^\\n\\r\u2028\u2029]", r"\s": f"[{SPACES}]", r"\S": f"[^{SPACES}]"}
PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)

# What they write, and some texts that people would try.
TABLE: dict[str, tuple[str, list[str]]] = {
    "pydantic 2.12, Decimal": (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", ["1", "-1.5", ".5", "+", "", "1.", "1e5"]),
    "zod 4.0, email": (
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        ["a@b.co", "a..b@c.de", ".a@b.co", "a.@b.co", "it's+x@a-b.co.uk", "a@b.c"],
    ),
    "zod 4, iso.duration": (
        r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$",
        ["P1W", "P", "P1Y2M", "PT", "PT1H", "P1YT", "P1DT2.5S", "P1W1D"],
    ),
    "zod 4.0, hostname": (
        (
            r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
            r"(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$"
        ),
        ["a", "a-b.c", "-a", "a.", "a..b", "a-"],
    ),
    "not blank": (r"^(?!\s*$).+", ["", " ", "\t\n", " a", "a", "\u2028", "\n"]),
    "social security": (
        r"^(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}$",
        ["123-45-6789", "000-45-6789", "666-45-6789", "912-45-6789", "123-00-6789", "123-45-0000"],
    ),
    "no two hyphens": ("^(?!.*--)[a-z-]+$", ["a-b", "a--b"]),
    "a password": (
        r"^(?=.*[A-Z])(?=.*[a-z])(?=.*\d)(?!.*\s)[\s\S]{4,6}$", ["Ab1x", "ab1x", "Ab x1", "Ab1", "AB1x\n"]
    ),
    "a digit, not behind": ("a(?!b)", ["a", "ab", "aba", "b"]),
    "tempered": ("^(?:(?!ab).)*$", ["", "aab", "ba", "a", "a\nb"]),
    "one within another": ("^(?!a(?!b))[abc]*$", ["a", "ab", "ba", ""]),
    "nothing": ("^(?!)|b$", ["", "b", "ab"]),
    "no start": ("(?!^)a", ["a", "ba"]),
    "lines": ("^.{2}$", ["ab", "\ra", "\u2028a", "a\n", "\U0001f600a", "\x85a"]),
    "spaces": (r"^\s[\s,]\S[^\s]$", ["  aa", "\ufeff,a\x85", "\x85 aa", "\x1c aa"]),
}  # fmt: skip


def of_python(pattern: str) -> re.Pattern[str]:
    """Return a pattern of ECMA's as Python reads it."""
    meant = [
        one.replace(r"\s", SPACES) if one.startswith("[") and r"\S" not in one else ECMAS.get(one, one)
        for one in PIECE.findall(pattern.replace("(?<x>", "(?P<x>"))
    ]
    return re.compile("".join(meant), re.ASCII)


def drawn(pattern: str, tried: list[str]) -> Iterator[str]:
    """Yield the texts that are tried, those near them, and others of the pattern's characters."""
    chance = random.Random(1)
    letters = [*{*pattern, *"".join(tried), *'ab09 \n\u2028é"\\'} - {*"^$()?*|{}"}]
    yield from tried
    for number in range(COUNT):
        text = [*chance.choice(tried)] if number % 2 else []
        for _ in range(chance.randrange(1, 7)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randrange(2)] = chance.choice(letters)
        yield "".join(text)


@pytest.mark.parametrize("name", TABLE)
def test_a_pattern_without_lookaround_matches_the_same_texts(name: str) -> None:
    pattern, tried = TABLE[name]
    judge, made = of_python(pattern), [*map(of_python, patterns.conditions(pattern))]
    for text in drawn(pattern, tried):
        assert all(one.search(text) for one in made) == (judge.search(text) is not None), text
