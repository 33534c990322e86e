"""Drawn JSON schemas of all keywords, composed with each other, and drawn values that tell them apart.

Nothing here knows a rule of ours: whether a value is valid is jsonschema's to say.
"""

import random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES: Final = ("a", "b", "c")
_LEAVES: Final[tuple[Any, ...]] = (
    {"type": "string"},
    {"type": "integer"},
    {"const": 1},
    {"enum": ["a", "b"]},
    {"type": "null"},
    True,
)
_TYPES: Final = (
    *("string", "integer", "number", "boolean", "null", "object", "object", "object", "array", "array"),
    *(["object", "null"], ["string", "integer"]),
)
_PATTERNS: Final = (
    "^a",
    "b",
    "c$",
    "^(a|b)$",
    "^(?!a)",
    "^(?!ab$)a",
    "^(?!(?:a|b)$)",
    "^(?=a)..$",
    "^[^a]*$",
)


def schema(chance: random.Random) -> dict[str, Any]:
    """Return a schema with two definitions, which it may refer to."""
    drawn = _object(chance, 2, refers=True)
    drawn["$defs"] = {"x": _object(chance, 1, refers=False), "y": _object(chance, 0, refers=False)}
    return drawn


def value(chance: random.Random, depth: int = 3) -> Any:
    """Return a value with the names, texts and numbers that the schemas are about."""
    kind = chance.randrange(9 if depth else 6)
    if kind < 1:
        return None
    if kind < 2:
        return chance.choice([True, False])
    if kind < 4:
        return chance.choice([0, 1, 2, 3, -1, 1.5, 2.0, 7])
    if kind < 6:
        return chance.choice(["", "a", "b", "ab", "abc", "xyz", "2020-01-01"])
    if kind < 8:
        names = chance.sample([*NAMES, "d"], chance.randint(0, 3))
        return {name: value(chance, depth - 1) for name in names}
    return [value(chance, depth - 1) for _ in range(chance.randint(0, 3))]


def _any(chance: random.Random, depth: int, *, refers: bool) -> Any:
    if chance.random() < 0.06:
        return chance.choice([True, False, {}])
    return _object(chance, depth, refers=refers) if depth else chance.choice(_LEAVES)


def _object(chance: random.Random, depth: int, *, refers: bool) -> dict[str, Any]:
    def inner() -> Any:
        return _any(chance, depth - 1, refers=refers) if depth else chance.choice(_LEAVES)

    def inners(most: int) -> list[Any]:
        return [inner() for _ in range(chance.randint(1, most))]

    def some() -> list[str]:
        return chance.sample(NAMES, chance.randint(1, 2))

    keywords: dict[str, Callable[[], Any]] = {
        "enum": lambda: [value(chance, 1) for _ in range(chance.randint(1, 3))],
        "const": lambda: value(chance, 1),
        "properties": lambda: {name: inner() for name in some()},
        "required": some,
        "additionalProperties": lambda: chance.choice([False, False, inner()]),
        "patternProperties": lambda: {chance.choice(["^a", "b$", "^[cd]"]): inner()},
        "propertyNames": lambda: chance.choice(
            [{"pattern": "^[ab]"}, {"enum": ["a", "d"]}, {"maxLength": 1}, {"type": "string"}, inner()]
        ),
        "minProperties": lambda: chance.randint(0, 2),
        "maxProperties": lambda: chance.randint(0, 3),
        "items": inner,
        "prefixItems": lambda: inners(2),
        "minItems": lambda: chance.randint(0, 2),
        "maxItems": lambda: chance.randint(0, 3),
        "contains": inner,
        "minContains": lambda: chance.randint(0, 2),
        "maxContains": lambda: chance.randint(1, 2),
        "uniqueItems": lambda: True,
        "minLength": lambda: chance.randint(0, 2),
        "maxLength": lambda: chance.randint(0, 3),
        "pattern": lambda: chance.choice(_PATTERNS),
        "format": lambda: chance.choice(["date", "password", "uuid"]),
        "minimum": lambda: chance.choice([0, 1, 1.5]),
        "maximum": lambda: chance.choice([1, 2, 3]),
        "exclusiveMinimum": lambda: chance.choice([0, 1]),
        "exclusiveMaximum": lambda: chance.choice([2, 3]),
        "multipleOf": lambda: chance.choice([1, 2, 0.5]),
        "not": inner,
        "allOf": lambda: inners(2),
        "anyOf": lambda: inners(3),
        "oneOf": lambda: inners(3),
        "if": inner,
        "then": inner,
        "else": inner,
        "dependentRequired": lambda: {chance.choice(NAMES): some()},
        "dependentSchemas": lambda: {chance.choice(NAMES): inner()},
        "dependencies": lambda: {chance.choice(NAMES): chance.choice([some(), inner()])},
        "unevaluatedProperties": lambda: False,
        "unevaluatedItems": lambda: False,
        "title": lambda: "not",
        "nullable": lambda: True,
        "x-order": lambda: 1,
    }
    if refers:
        keywords["$ref"] = lambda: chance.choice(["#/$defs/x", "#/$defs/y"])
    drawn = {"type": chance.choice(_TYPES)} if chance.random() < 0.6 else {}
    return drawn | {name: keywords[name]() for name in chance.sample(sorted(keywords), chance.randint(1, 4))}
