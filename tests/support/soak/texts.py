"""Strategies of texts that a regular expression describes, as every kind of grammar that can say so.

A text's shape is drawn once and written as a regex, as EBNF or as Lark, so that Python's `re`, which shares
nothing with either grammar library, judges the answer to each.
"""

import json
import re
from dataclasses import dataclass
from typing import Literal, Protocol

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Language = Literal["regex", "ebnf", "lark"]


class Shape(Protocol):
    """A part of a text."""

    def regex(self) -> str: ...

    def ebnf(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Literally:
    text: str

    def regex(self) -> str:
        return re.sub(r"([\\.^$*+?{}\[\]|()/])", r"\\\1", self.text)

    def ebnf(self) -> str:
        return json.dumps(self.text, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A character class, without its brackets."""

    inside: str

    def regex(self) -> str:
        return f"[{self.inside}]"

    ebnf = regex


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Shape, ...]

    def regex(self) -> str:
        return "".join(part.regex() for part in self.parts)

    def ebnf(self) -> str:
        return " ".join(part.ebnf() for part in self.parts)


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Shape, ...]

    def regex(self) -> str:
        return f"({'|'.join(option.regex() for option in self.options)})"

    def ebnf(self) -> str:
        return f"({' | '.join(option.ebnf() for option in self.options)})"


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Shape
    times: str  # as both languages write it: ? * + {2} {0,3} {2,}

    def regex(self) -> str:
        return f"({self.part.regex()}){self.times}"

    def ebnf(self) -> str:
        return f"({self.part.ebnf()}){self.times}"


_WORDS = ["a", "ab", "foo", "GET ", "SELECT ", "-", ", ", ": ", "(", "+49 "]
_WORDS += ["ß", "ünï", "→", "$1.00", "\\", "x/y"]
_CLASSES = ["a-z", "A-Z", "0-9", "a-zA-Z0-9_", "abc", "^,;", r"^a-z\n", "à-ü", "0-9a-f", " -~", r"\-+"]
_SMALL = ["?", "*", "+", "{2}", "{0,3}", "{1,4}", "{2,}", "{3,12}"]
_LARGE = ["{1,40}", "{0,100}", "{20,}", "{5,130}"]


def shapes(depth: int = 2) -> SearchStrategy[Shape]:
    """Return shapes that nest `depth` levels at most."""
    atoms = st.sampled_from(_WORDS).map(Literally) | st.sampled_from(_CLASSES).map(OneOf)
    if depth == 0:
        return atoms
    inner = shapes(depth - 1)
    times = st.sampled_from(_SMALL * 4 + _LARGE)
    return st.one_of(
        st.builds(Repeat, atoms, times),
        st.builds(Repeat, inner, st.sampled_from(_SMALL)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Sequence(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: Choice(tuple(options))),
    )


@st.composite
def written(draw: DrawFn, language: Language) -> tuple[str, str]:
    """Draw a grammar and the regular expression of the same texts."""
    shape = draw(shapes())
    regex = shape.regex()
    if language == "ebnf":
        return f'root ::= first | second\nfirst ::= {shape.ebnf()}\nsecond ::= "#" first', f"#?({regex})"
    if language == "lark":
        return f'start: first | "#" first\nfirst: /{regex}/', f"#?({regex})"
    return draw(st.sampled_from([regex, regex, f"^{regex}$" if not regex.startswith("^") else regex])), regex


def choices() -> SearchStrategy[list[str]]:
    """Draw options of a choice: one may begin another, not all are ASCII, some have to be escaped."""
    more = ["yes", "yes, but", "no", "none", "A longer option, with words.", 'q"', "a\nb", "\t"]
    texts = st.sampled_from([*_WORDS, *more])
    return st.lists(texts, min_size=1, max_size=12, unique=True)
