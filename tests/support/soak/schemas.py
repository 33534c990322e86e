"""Drawn JSON Schemas as users write them: of compositions', the usual keywords of each type, in order."""

import random
from typing import Any, Final

from support.compositions.schemas import Drawing, Schema, Words

_NAMES: Final = ("id", "name", "count", "tags", "note", "a", "größe", "two words", "$ref", 'q"', "x/y")
_TEXTS: Final = ("alpha", "beta", "red", "Rot & Blau", "", "ünïcode", 'say "hi"', "a\nb")
_PATTERNS: Final = (
    *(r"^[a-z]{2,8}$", r"^[A-Z]{3}-[0-9]{3,6}$", r"^\d{3}-\d{4}$", r"^(foo|bar|baz)(,(foo|bar|baz))*$"),
    *(r"^[^@\s]+@[a-z]+\.(com|org)$", r"^\+?[0-9 ]{1,12}$", r"^#[0-9a-fA-F]{6}$", r"[0-9]", "^.{0,10}$"),
    *(r"^v[0-9]+\.[0-9]+(-rc[0-9])?$", r'^"[a-z]*"$', r"^[a-z]+\\[a-z]\n?$", r"^\S+$"),
)
_FORMATS: Final = (
    "date",
    "time",
    "date-time",
    "uuid",
    "ipv4",
    "ipv6",
    "email",
    "uri",
    "hostname",
    "duration",
)
# Lengths: most are small, some are larger than what the backends like to compile.
_LENGTHS: Final = (*range(13), 21, 40, 60, 100, 128, 500, 2000)
_TYPES: Final = (*("string",) * 4, "integer", "integer", "number", "boolean", "object", "array")
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "string": ("maxLength", "maxLength", "minLength", "pattern", "format", "enum", "const", "annotations"),
    "integer": (*_BOUNDS, "enum", "annotations"),
    "number": _BOUNDS,
    "boolean": (),
    "array": ("minItems", "maxItems"),
}
# Keywords beside one that could rule alone, or without the type that they are for, and a schema of itself.
_ODD: Final[tuple[Schema, ...]] = (
    {"type": "integer", "enum": [1, 2, 30], "minimum": 2},
    {"type": "string", "enum": ["a", "abc", "b"], "minLength": 2},
    {"type": "string", "anyOf": [{"const": "x"}, {"type": "integer"}, {"pattern": "^[yz]$"}]},
    {"allOf": [{"type": "integer"}], "maximum": 30},
    {"minimum": 3, "maximum": 40},
    {"type": ["string", "null"]},
    {"type": "array", "items": {"enum": [1, "a", None]}, "uniqueItems": True, "maxItems": 2},
)
RECURSIVE: Final[Schema] = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
            },
            "required": ["value"],
            "additionalProperties": False,
        }
    },
}


class Usual(Drawing):
    """Draws one schema."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance, Words(chance.sample(_NAMES, 4), _PATTERNS, self._named))
        self.draft = 2020

    def schema(self) -> Any:
        """Return a schema of a whole document: mostly objects, some with definitions."""
        chance = self._chance
        if chance.random() < 0.05:
            return RECURSIVE
        kind = chance.choice(["object"] * 6 + ["array", "array", None])
        if chance.random() < 0.7:
            return self._object(2, kind)
        home = chance.choice(["$defs", "definitions"])
        parts = {"part": self._any(1), "other part": self._leaf()}
        self._targets = [f"#/{home}/part", f"#/{home}/other%20part"]
        return {**self._object(2, kind), home: parts}

    def value(self, depth: int) -> Any:
        """Return a schema of a value."""
        return self._any(depth)

    def _any(self, depth: int, kind: str | None = None) -> Any:
        chance = self._chance
        way = chance.random()
        if way < 0.06:
            return chance.choice(_ODD)
        if way < 0.12 and depth > 0:
            return {chance.choice(["anyOf", "oneOf"]): [self._leaf("string"), self._leaf("integer")]}
        if way < 0.3 and self._targets:
            return {"$ref": chance.choice(self._targets)}
        return self._object(depth, kind) if depth > 0 else self._leaf(kind)

    def _leaf(self, kind: str | None = None) -> Schema:
        return self._object(0, kind or self._chance.choice(_TYPES[:-2]))

    def _object(self, depth: int, kind: str | None = None) -> Schema:
        chance = self._chance
        kind = kind or chance.choice(_TYPES)
        if kind == "object":
            return self._of_properties(depth) if chance.random() < 0.9 else self._union(depth)
        made: Schema = {"type": kind, **(self._keyword("items", depth - 1) if kind == "array" else {})}
        for keyword in chance.sample(_KEYWORDS[kind], chance.randint(0, min(2, len(_KEYWORDS[kind])))):
            made |= self._keyword(keyword, depth, kind)
        for low, high in (("minLength", "maxLength"), ("minItems", "maxItems"), _BOUNDS[:2], _BOUNDS[2:]):
            if low in made and high in made:
                made[low], made[high] = sorted((made[low], made[high] + 1))
        return made

    def _of_properties(self, depth: int) -> Schema:
        chance = self._chance
        made: Schema = {"type": "object", **self._keyword("properties", depth - 1)}
        made["required"] = [name for name in made["properties"] if chance.random() < 0.6]
        more = chance.random()
        if more < 0.5:
            made["additionalProperties"] = False
        elif more < 0.6:
            made["additionalProperties"] = {"type": "integer"}
        elif more < 0.65:
            made |= {"patternProperties": {"^x-": {"type": "boolean"}}, "additionalProperties": False}
        elif more < 0.7:
            made |= {"minProperties": 1, "maxProperties": len(made["properties"])}
        elif more < 0.75:
            made["anyOf"] = [{"required": [name]} for name in made["properties"]]
        return made

    def _keyword(self, keyword: str, depth: int, kind: str | None = None) -> Schema:
        if keyword == "maxLength":
            return {keyword: self._chance.choice(_LENGTHS)}
        if keyword == "minLength":  # a text so long fills the answer
            return {keyword: self._chance.randint(0, 20)}
        if keyword == "format":
            return {keyword: self._chance.choice(_FORMATS)}
        return super()._keyword(keyword, depth, kind)

    def _named(self, _depth: int, kind: str | None) -> Any:
        return self._chance.randint(-5, 500) if kind == "integer" else self._chance.choice(_TEXTS)
