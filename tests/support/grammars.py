"""Grammars for tests: some of every kind, and some that compile slowly or never."""

import json
from typing import Any

from guided_contract.wire import Kind

PERSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
BOUNDED = json.dumps({"type": "object", "properties": {"note": {"type": "string", "maxLength": 40}}})


def tag(name: str) -> str:
    """Return a structural tag."""
    structure = {"begin": f"<{name}>", "schema": {"type": "object"}, "end": f"</{name}>"}
    return json.dumps({"structures": [structure], "triggers": [f"<{name}"]})


TAGS = tag("f")
OF_EVERY_KIND: dict[str, tuple[Kind, str]] = {
    "json": ("json", PERSON),
    "json, bounded": ("json", BOUNDED),
    "json_object": ("json_object", ""),
    "regex": ("regex", r"[a-z]{2,5}-\d+"),
    "choice": ("choice", '["yes", "no", "a \\"quoted\\" one\\n"]'),
    "EBNF": ("grammar", 'root ::= "a" rest\nrest ::= [0-9]+ | "b" rest'),
    "Lark": ("grammar", 'start: "a" word\nword: /[a-z]+/'),
    "structural tag": ("structural_tag", TAGS),
}


def slow_regex(parts: int) -> str:
    """Return a regex that xgrammar compiles for about a second per 400 parts, on two CPUs."""
    return "(" + "|".join(f"[a-z]{{{part % 9}}}w{part}[^a]" for part in range(parts)) + ")*"


def references_in_a_row(count: int) -> dict[str, Any]:
    """Return a schema of definitions, each with a reference to the next."""
    row = {f"p{number}": {"$ref": f"#/$defs/p{number + 1}"} for number in range(count)}
    return {"$ref": "#/$defs/p0", "$defs": {**row, f"p{count}": {"type": "null"}}}


def endless_regex(seed: int = 0) -> str:
    """Return a regex that xgrammar compiles for minutes, in a few MiB; each seed makes another."""
    return f"{seed}{slow_regex(6000)}"


def hungry_regex() -> str:
    """Return a regex whose compiling takes xgrammar ever more memory: 280 MiB within a minute."""
    repeats = "".join(f"[^{letters}]{{{{0,{{}}}}}}" for letters in ("ab", "cd", "ef"))
    parts = (
        f"x{part}{repeats.format(*(100 + part % most for most in (28, 27, 26)))}y" for part in range(2800)
    )
    return f"({'|'.join(parts)})"


# Grammars whose masks are cheap, and that take ever longer to accept the same letter once more.
AMBIGUOUS: dict[str, tuple[Kind, str]] = {
    "nested": ("regex", "(a{0,100}){0,100}z"),
    "nested twice": ("regex", "((a{0,100}){0,100}){0,100}z"),
    "stars": ("regex", "(((a*)*)*)*z"),
    "ebnf": ("grammar", 'root ::= ("a"{0,100}){0,100} "z"'),
    "behind a long text": ("grammar", f'root ::= "{300 * "b"}" ("a"{{0,100}}){{0,100}} "z"'),
    "deep": ("grammar", f'root ::= {"(" * 150}"a"{")*" * 150}'),
    "sum": ("grammar", 'root ::= s\ns ::= s s | "a"'),
    "pattern": ("json", json.dumps({"type": "string", "pattern": "^(a{0,100}){0,100}z$"})),
}
