"""Grammars as texts: which language one is in, how a choice is written, and what xgrammar would misread."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

# A pattern of a whole text: characters that a JSON string holds as they are, classes, groups, repeats.
_CHARACTER: Final = r'(?:[^\x00-\x1f\x7f"\\^$.|?*+()\[\]{}]|\\[-.^$|?*+()\[\]{}/])'
_CLASS: Final = r'\[(?:[^\x00-\x1f\x7f"\\^\[\]]|\\[-.^$|?*+()\[\]{}/d])+\]'
_PLAIN_PATTERN: Final = re.compile(
    rf"\^(?:(?:{_CHARACTER}|{_CLASS}|\\d)(?:[*+?]|\{{\d+(?:,\d*)?\}})?|\((?:\?:)?|\)|\|)*\$"
)
_IN_CLASS: Final = re.compile(r"(\\.|.)-(\\.|[^\]])")
_REPEATS: Final = frozenset("*+?{")
_UNPLAIN: Final = '"\\\x7f'
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


def choice_as_lark(choices: list[str]) -> str:
    """Write a choice as one terminal of llguidance's Lark: its parser follows 2,000 alternatives at most."""
    texts = (json.dumps(choice, ensure_ascii=False).replace("\x7f", "\\u007f") for choice in choices)
    return f"start: CHOICE\nCHOICE: {' | '.join(texts)}"


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


def new_form(tag: Any) -> Any:
    """Return a structural tag in the form that names a `format`, in which nothing is left out."""
    if "structures" not in tag:
        return tag
    tags = [
        {
            "type": "tag",
            "begin": one["begin"],
            "content": {"type": "json_schema", "json_schema": one["schema"]},
            "end": one["end"],
        }
        for one in tag["structures"]
    ]
    form = {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}
    return {"type": "structural_tag", "format": form}


def is_plain(spec: str) -> bool:
    """Return whether a grammar's text names no character that xgrammar 0.2.8 writes as an escape.

    `compile_grammar` of a Grammar writes it out and reads it again where its cache is on, and there an escape
    swallows the letters behind it that could be its digits: of "ß" and "e" it makes U+0DFE.
    """
    return _ODD.search(spec) is None


def is_plain_pattern(pattern: str) -> bool:
    """Return whether xgrammar reads a JSON Schema's pattern as the specification does: `^...$`, and no more.

    It takes any pattern for one of the whole text, ignores anchors within, takes other texts where repeats
    stand beside choices or within them (`^a(b[ab]+)?$` takes `ab`, `^(a|ab?)$` takes `b`), and writes what it
    matches into the string as it is: quotes, backslashes and control characters without escapes, none of
    these for `.`.
    """
    if not _PLAIN_PATTERN.fullmatch(pattern):
        return False
    parts = re.findall(rf"{_CLASS}|\\.|\(\?:|[()|*+?{{]", pattern)
    if "|" in parts and not _REPEATS.isdisjoint(parts):
        return False
    level = 0
    for part in parts:
        level += part.startswith("(") - (part == ")")
        if part == "|" and level == 0:
            return False
        if part.startswith("[") and not all(map(_is_plain_range, _IN_CLASS.findall(part[1:]))):
            return False
    return True


def _is_plain_range(ends: tuple[str, str]) -> bool:
    low, high = (end[-1] for end in ends)
    return not any(low <= character <= high for character in _UNPLAIN)
