"""Grammars as texts: which language one is in, how a choice is written, and what a tag's old form means."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def is_lark(grammar: str) -> bool:
    """Tell Lark from EBNF as vLLM's grammar_is_likely_lark does: no rule is written with `::=`."""
    lines = (re.sub(r"(#|//).*$", "", line) for line in grammar.split("\n"))
    return not any("::=" in line for line in lines)


def one_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Return what finds the longest of some texts."""
    longest_first = sorted(filter(None, texts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def choice_as_lark(choices: list[str]) -> str:
    """Write a choice as one terminal of llguidance's Lark: its parser follows 2,000 alternatives at most."""
    return f"start: CHOICE\nCHOICE: {' | '.join(map(literal, choices))}"


def literal(text: str) -> str:
    """Return a text as Lark has it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def choice_as_ebnf(choices: list[str]) -> str:
    """Write a choice as the EBNF that vLLM's choice_as_grammar makes of it."""
    return "root ::= " + " | ".join(f'"{"".join(map(_escaped, choice))}"' for choice in choices)


def _escaped(character: str) -> str:
    is_control = ord(character) < 0x20 or ord(character) == 0x7F
    return _ESCAPES.get(character) or (f"\\u{ord(character):04x}" if is_control else character)


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
