"""Grammars as texts: which language one is in, how a choice is written, and what xgrammar would misread."""

import re
from collections.abc import Iterable
from typing import Any, Final

# Neither plain text, nor an escape that stays one character or a class of letters and digits.
_ODD: Final = re.compile(r"[^\t\n\r -~]|\\(?![dDwWntr])[A-Za-z0-9]")


def is_lark(grammar: str) -> bool:
    """Tell Lark from EBNF as vLLM's grammar_is_likely_lark does: no rule is written with `::=`."""
    lines = (re.sub(r"(#|//).*$", "", line) for line in grammar.split("\n"))
    return not any("::=" in line for line in lines)


def language(grammar: str) -> str:
    """Return "lark" or "ebnf"."""
    return "lark" if is_lark(grammar) else "ebnf"


def one_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Return what finds the longest of some texts, in time that does not grow with their number."""
    root: dict[str, Any] = {}
    for text in filter(None, texts):
        node = root
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    return re.compile(_pattern(root) if root else r"(?!)")


def _pattern(node: dict[str, Any]) -> str:
    ways = [re.escape(character) + _pattern(below) for character, below in node.items() if character]
    if not ways:
        return ""
    among = ways[0] if len(ways) == 1 and "" not in node else f"(?:{'|'.join(ways)})"
    return f"{among}?" if "" in node else among


def choice_as_ebnf(choices: list[str]) -> str:
    """Write a choice as the EBNF that vLLM's choice_as_grammar makes of it."""
    return "root ::= " + " | ".join(f'"{"".join(map(_escaped, choice))}"' for choice in choices)


def _escaped(character: str) -> str:
    known = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    if character in known:
        return known[character]
    if ord(character) < 0x20 or ord(character) == 0x7F:
        return f"\\u{ord(character):04x}"
    return character


def is_plain(spec: str) -> bool:
    """Return whether a grammar's text names no character that xgrammar 0.2.8 writes as an escape.

    `compile_grammar` of a Grammar writes it out and reads it again where its cache is on, and there an escape
    swallows the letters behind it that could be its digits: of "ß" and "e" it makes U+0DFE.
    """
    return _ODD.search(spec) is None
