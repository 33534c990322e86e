"""Strategies of texts that a regular expression describes, as every kind of grammar that can say so.

A text's shape is drawn once and written as a regex, as EBNF or as Lark, so that Python's `re`, which shares
nothing with either grammar library, judges the answer to each.
"""

import json
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Language = Literal["regex", "ebnf", "lark"]


class Shape(NamedTuple):
    """A part of a text, in both languages. Counts are the same in both: ? * + {2} {0,3} {2,}."""

    regex: str
    ebnf: str


def _literally(text: str) -> Shape:
    escaped = re.sub(r"([\\.^$*+?{}\[\]|()/])", r"\\\1", text)
    return Shape(escaped, json.dumps(text, ensure_ascii=False))


def _one_of(characters: str) -> Shape:
    return Shape(f"[{characters}]", f"[{characters}]")


def _repeat(part: Shape, times: str) -> Shape:
    return Shape(f"({part.regex}){times}", f"({part.ebnf}){times}")


def _sequence(parts: Sequence[Shape]) -> Shape:
    return Shape("".join(part.regex for part in parts), " ".join(part.ebnf for part in parts))


def _choice(parts: Sequence[Shape]) -> Shape:
    return Shape(
        f"({'|'.join(part.regex for part in parts)})", f"({' | '.join(part.ebnf for part in parts)})"
    )


_WORDS = ["a", "ab", "foo", "GET ", "SELECT ", "-", ", ", ": ", "(", "+49 "]
_WORDS += ["ß", "ünï", "→", "$1.00", "\\", "x/y"]
_CLASSES = ["a-z", "A-Z", "0-9", "a-zA-Z0-9_", "abc", "^,;", r"^a-z\n", "à-ü", "0-9a-f", " -~", r"\-+"]
_SMALL = ["?", "*", "+", "{2}", "{0,3}", "{1,4}", "{2,}", "{3,12}"]
_LARGE = ["{1,40}", "{0,100}", "{20,}", "{5,130}"]


def shapes(depth: int = 2) -> SearchStrategy[Shape]:
    """Return shapes that nest `depth` levels at most."""
    atoms = st.sampled_from(_WORDS).map(_literally) | st.sampled_from(_CLASSES).map(_one_of)
    if depth == 0:
        return atoms
    inner = shapes(depth - 1)
    some = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(_repeat, atoms, st.sampled_from(_SMALL * 4 + _LARGE)),
        st.builds(_repeat, inner, st.sampled_from(_SMALL)),
        some.map(_sequence),
        some.map(_choice),
    )


@st.composite
def written(draw: DrawFn, language: Language) -> tuple[str, str]:
    """Draw a grammar and the regular expression of the same texts."""
    regex, ebnf = draw(shapes())
    if language == "ebnf":
        return f'root ::= first | second\nfirst ::= {ebnf}\nsecond ::= "#" first', f"#?({regex})"
    if language == "lark":
        return f'start: first | "#" first\nfirst: /{regex}/', f"#?({regex})"
    return draw(st.sampled_from([regex, regex, f"^{regex}$" if not regex.startswith("^") else regex])), regex


def choices() -> SearchStrategy[list[str]]:
    """Draw options of a choice: one may begin another, not all are ASCII, some have to be escaped."""
    more = ["yes", "yes, but", "no", "none", "A longer option, with words.", 'q"', "a\nb", "\t"]
    texts = st.sampled_from([*_WORDS, *more])
    return st.lists(texts, min_size=1, max_size=12, unique=True)
