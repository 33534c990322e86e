"""Schemas that differ from each other, and documents that meet them: what guided requests ask for."""

import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "dog",
    "while",
    "people",
    "read",
    "many",
    "books",
    "about",
    "history",
    "and",
    "science",
    "in",
    "old",
    "city",
    "library",
    "near",
    "river",
    "order",
    "invoice",
    "customer",
    "address",
    "street",
    "number",
    "price",
    "total",
    "summary",
    "answer",
    "reason",
]
_NAMES = [f"{a}{b}" for a in ("", "first_", "order", "item_", "is", "max") for b in WORDS]


def schema(number: int) -> dict[str, Any]:
    """Return one schema of an endless, fixed series: closed objects, all properties required."""
    rng = random.Random(f"schema {number}")
    return _object(rng, depth=0, size=rng.randint(4, 9))


def document(of: dict[str, Any], seed: str) -> str:
    """Return a JSON text that meets such a schema, mostly strings of some words."""
    return json.dumps(_value(of, random.Random(seed)), ensure_ascii=False)


def _object(rng: random.Random, depth: int, size: int) -> dict[str, Any]:
    names = rng.sample(_NAMES, size)
    properties = {name: _property(rng, depth) for name in names}
    return {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    }


def _property(rng: random.Random, depth: int) -> dict[str, Any]:
    makers: list[Callable[[], dict[str, Any]]] = [
        lambda: {"type": "string"},
        lambda: {"type": "string"},
        lambda: {"type": "integer"},
        lambda: {"type": "number"},
        lambda: {"type": "boolean"},
        lambda: {"enum": rng.sample(WORDS, 4)},
        lambda: {"anyOf": [{"type": "string"}, {"type": "null"}]},
        lambda: {"type": "array", "items": {"type": "string"}},
    ]
    if depth < 2:
        makers += [
            lambda: _object(rng, depth + 1, rng.randint(2, 4)),
            lambda: {"type": "array", "items": _object(rng, depth + 1, 2)},
        ]
    return rng.choice(makers)()


def _value(of: dict[str, Any], rng: random.Random) -> Any:
    if "enum" in of:
        return rng.choice(of["enum"])
    if "anyOf" in of:
        return _value(rng.choice(of["anyOf"]), rng)
    kinds: dict[str, Any] = {
        "string": lambda: " ".join(rng.choices(WORDS, k=rng.randint(2, 25))),
        "integer": lambda: rng.randint(0, 99999),
        "number": lambda: round(rng.random() * 1000, 2),
        "boolean": lambda: rng.random() < 0.5,
        "null": lambda: None,
        "array": lambda: [_value(of["items"], rng) for _ in range(rng.randint(1, 4))],
        "object": lambda: {name: _value(part, rng) for name, part in of["properties"].items()},
    }
    return kinds[of["type"]]()
