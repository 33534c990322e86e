"""Drawn schemas of few names, texts and patterns, and the values that often meet one of their branches.

Of three to five keywords each, most of them of what is written as alternatives: so what is told of such a
schema can be compared with what jsonschema says of all values that matter to it.
"""

import itertools
import random
from typing import Any, Final

from support.compositions.schemas import DRAFTS

Schema = dict[str, Any]
PATTERNS: Final = (
    *("^x", "^y", "^z", "x", "y$", "^[xy]", "^[^x]", "^x+$", "^(x|y)$", "^(?:xy|z)", "^.$", "^..$", "^$", ""),
    *(
        "^[0-9]+$",
        "^[a-z]+$",
        r"^\d",
        r"^\w+$",
        r"\W",
        "^(?!x)",
        "^(?=x)..$",
        "x|y",
        "^x|y$",
        "^x?y?$",
        "x{2,}",
    ),
)
TEXTS: Final = ("", "x", "y", "z", "xy", "yx", "xx", "zz", "xyz", "1", "12", "x1", "é", "-", "x y")
_NAMES: Final = ("x", "y", "xy")
_LEAVES: Final = (*TEXTS, None, True, False, 0, 1, 2, 3, -1, 1.5, 7)


def values() -> list[Any]:
    """Return the values that are looked at: leaves, and small arrays and objects of leaves."""
    some = ("x", "y", "z", "xx", "1", 0, 1, 3, None)
    arrays = [
        list(items) for count in range(4) for items in itertools.product(("x", "y", 1, None), repeat=count)
    ]
    arrays += [[one] for one in _LEAVES]
    objects: list[Any] = [{name: one} for name in (*_NAMES, "z") for one in _LEAVES]
    pairs = itertools.product(itertools.combinations((*_NAMES, "z"), 2), some, some)
    objects += [{first: one, second: other} for (first, second), one, other in pairs]
    objects += [dict.fromkeys(_NAMES, one) for one in some]
    nested: list[Any] = [{"x": one} for one in (*arrays[:12], {}, {"x": "x"}, {"y": "y"}, {"x": 1, "y": "x"})]
    return [*_LEAVES, {}, *arrays, *objects, *nested, [{}], [{"x": "x"}], [["x"]]]


def schema(chance: random.Random) -> Schema:
    """Return a drawn schema."""
    draft = chance.choice([2020, 2020, 2019, 7, 7, 6, 4])
    return {"$schema": DRAFTS[draft], **_Drawing(chance, draft).some(chance.choice([2, 2, 3]))}


class _Drawing:
    def __init__(self, chance: random.Random, draft: int) -> None:
        self._chance = chance
        self._draft = draft

    def some(self, depth: int, kind: str | None = None) -> Schema:
        """Return three to five keywords, most of them about one type; below, fewer."""
        chance = self._chance
        kind = kind or chance.choice(["string", "string", "object", "object", "object", "array", "integer"])
        made: Schema = {"type": kind} if chance.random() < 0.7 else {}
        for _ in range(chance.randint(2, 4) if depth > 1 else chance.randint(1, 2)):
            keywords = [*_OF[kind], *(_ANYWHERE if depth else ("const", "enum"))]
            made |= self._keyword(chance.choice(keywords), depth - 1, kind)
        return made

    def _part(self, depth: int, kind: str | None = None) -> Any:
        if self._draft > 4 and self._chance.random() < 0.04:
            return self._chance.choice([True, False])
        return self.some(max(depth, 0), kind)

    def _keyword(self, keyword: str, depth: int, kind: str) -> Schema:
        chance, part = self._chance, self._part
        names = list(_NAMES)
        if keyword in ("allOf", "anyOf", "oneOf"):
            return {keyword: [part(depth, kind) for _ in range(chance.randint(1, 3))]}
        if keyword in (
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "maxProperties",
        ):
            return {keyword: chance.randint(0, 3)}
        if keyword == "items" and self._draft < 2020 and chance.random() < 0.5:
            return {
                "items": [part(depth) for _ in range(chance.randint(1, 2))],
                "additionalItems": part(depth),
            }
        drawn: dict[str, Any] = {
            "pattern": lambda: chance.choice(PATTERNS),
            "enum": lambda: chance.sample(_LEAVES if chance.random() < 0.3 else TEXTS, chance.randint(1, 3)),
            "const": lambda: chance.choice(_LEAVES if chance.random() < 0.3 else TEXTS),
            "multipleOf": lambda: chance.choice([1, 2, 3]),
            "required": lambda: chance.sample(names, chance.randint(1, 2)),
            "properties": lambda: {name: part(depth) for name in chance.sample(names, chance.randint(1, 2))},
            "patternProperties": lambda: {chance.choice(PATTERNS): part(depth)},
            "additionalProperties": lambda: chance.choice([False, part(depth)]) if self._draft > 4 else False,
            "propertyNames": lambda: part(0, "string"),
            "dependencies": lambda: {
                name: chance.choice([chance.sample(names, 1), part(depth, "object")])
                for name in chance.sample(names, chance.randint(1, 2))
            },
            "dependentRequired": lambda: {chance.choice(names): chance.sample(names, 1)},
            "dependentSchemas": lambda: {chance.choice(names): part(depth, "object")},
            "minProperties": lambda: 1,
            "items": lambda: part(depth),
            "uniqueItems": lambda: True,
        }
        return {keyword: drawn[keyword]()}


_OF: Final = {
    "string": ("pattern", "pattern", "pattern", "minLength", "maxLength"),
    "integer": ("minimum", "maximum", "multipleOf"),
    "object": (
        *("properties", "properties", "required", "required", "dependencies", "dependentRequired"),
        *("dependentSchemas", "patternProperties", "additionalProperties", "propertyNames", "minProperties"),
        "maxProperties",
    ),
    "array": ("items", "minItems", "maxItems", "uniqueItems"),
}
_ANYWHERE: Final = ("oneOf", "oneOf", "oneOf", "anyOf", "allOf", "enum", "const")
