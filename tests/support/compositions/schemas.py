"""Drawn JSON schemas of drafts 4 to 2020-12: the keywords that are served, composed with each other, nested.

Nothing here knows a rule of ours; most schemas are of the kinds that people write, some of any keywords at
all. They need not be right: the sidecar then refuses them.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from support.compositions import values

Schema = dict[str, Any]
DRAFTS: Final = {
    2020: "https://json-schema.org/draft/2020-12/schema",
    2019: "https://json-schema.org/draft/2019-09/schema",
    7: "http://json-schema.org/draft-07/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    4: "http://json-schema.org/draft-04/schema#",
}
PATTERNS: Final = (
    *("^a", "b", "c$", "^a$", "", "^$", "^(a|b)$", "a|b", "^a|b$", "^[a-c]+$", "[ab]{2}", "^.$", "^.{1,3}$"),
    *("^(?!a)", "^(?!ab$)a", "^(?!(?:a|b)$)", "^(?=a)..$", "^(?=.*b)[a-c]{2,4}$", "^(?!.*b)", "a(?!b)"),
    *("^[^a]*$", r"^\d+$", r"^\w*$", r"\s", r"^\S+$", r"^\D", r"\bb", r"^a\.b$", r"^\u0061", "^é+$", "😀"),
    *(r"^\"", r"\\", r"^a\/b", r"^[\w.-]+@\w+$", "^a{2,}$", "^(a|ab)(c|bcd)$", "^(ab)*$"),
    *(r"^\x61?$", "[^b]$"),
    *(r"^[A-Z]{2}\d{1,3}$", "(?i)^a", "^a?b?c?$", r"^[\]a]$", "^[a\\-c]$", r"^\n", "^(?:a$|b)", "$", "^"),
)
_TYPES: Final = (
    *("string", "integer", "number", "boolean", "null", "object", "object", "object", "array"),
    "array",
)
_FORMATS: Final = (
    *("date", "date-time", "time", "duration", "email", "uuid", "ipv4", "ipv6", "hostname", "uri"),
    *("uri-reference", "json-pointer", "regex", "password", "int32", "binary", "decimal", "x"),
)
_ANNOTATIONS: Final = {
    "title": "not",
    "description": "a $ref to nothing",
    "default": {"type": 1},
    "examples": [{"not": {}}],
    "nullable": True,
    "x-order": 1,
    "$comment": "enum",
    "discriminator": {"propertyName": "kind"},
}
_OF_TYPE: Final[dict[str, tuple[str, ...]]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "boolean": (),
    "null": (),
    "object": (
        *("properties", "properties", "properties", "required", "required", "additionalProperties"),
        *("patternProperties", "propertyNames", "minProperties", "maxProperties", "dependencies"),
        *("dependentRequired", "dependentSchemas", "unevaluatedProperties"),
    ),
    "array": (
        *("items", "items", "prefixItems", "minItems", "maxItems"),
        *("uniqueItems", "unevaluatedItems", "additionalItems"),
    ),
}
_ANYWHERE: Final = ("allOf", "anyOf", "oneOf", "$ref", "enum", "const", "annotations")
_LIKELY: Final = 0.75  # of a keyword of the type rather than one that stands anywhere


class Words(NamedTuple):
    """What schemas are written in; `value` draws a value, of a depth and most often of a type."""

    names: Sequence[str]
    patterns: Sequence[str]
    value: Callable[[int, str | None], Any]


class Drawing:
    """Draws one schema, of many words if none are given.

    Attributes
    ----------
    draft
        4, 6, 7, 2019 or 2020.
    """

    def __init__(self, chance: random.Random, words: Words | None = None) -> None:
        self._chance = chance
        self.draft = chance.choice([2020, 2020, 2020, 2019, 7, 7, 6, 4])
        self._definitions = "$defs" if self.draft >= 2019 else "definitions"
        if words is None:
            few = chance.sample(values.NAMES, 4)
            words = Words(few, PATTERNS, lambda depth, kind: values.value(chance, depth, few, kind))
        self._names, self._patterns, self._value = words
        self._targets: list[str] = []
        self._is_wild = chance.random() < 0.2

    def schema(self) -> Any:
        """Return a schema with definitions, which it may refer to."""
        keys = self._chance.sample(["x", "y", "x.open", "ref0", "a/b", "c%d", "e~f", "ä"], 2)
        anchor = {2019: "$anchor", 2020: "$anchor"}.get(self.draft, "id" if self.draft == 4 else "$id")
        escaped = [key.replace("~", "~0").replace("/", "~1").replace("%", "%25") for key in keys]
        definitions = {keys[1]: self._any(1)}  # which refers to none
        self._targets = [f"#/{self._definitions}/{key}" for key in escaped] * 2 + ["#"]
        definitions[keys[0]] = self._any(2)
        if self._chance.random() < 0.2 and isinstance(definitions[keys[0]], dict):
            definitions[keys[0]][anchor] = "here" if anchor == "$anchor" else "#here"
            self._targets.append("#here")
        drawn = self._object(self._chance.choice([2, 3]))
        if self.draft != 2020 or self._chance.random() < 0.3:
            drawn = {"$schema": DRAFTS[self.draft], **drawn}
        return {**drawn, self._definitions: definitions}

    def small(self) -> Schema:
        """Return a schema without definitions."""
        return {"$schema": DRAFTS[self.draft], **self._object(2)}

    def _any(self, depth: int, kind: str | None = None) -> Any:
        """Return a schema, most often one that values of the type `kind` can meet."""
        chance = self._chance
        if chance.random() < 0.06:
            return {} if self.draft == 4 else chance.choice([True, True, False, {}])
        kind = kind if chance.random() < 0.85 else None
        return self._object(depth, kind) if depth > 0 or kind in {"object", "array"} else self._leaf(kind)

    def _leaf(self, kind: str | None = None) -> Schema:
        chance = self._chance
        if kind is not None:
            return {
                **({"type": kind} if chance.random() < 0.5 else {}),
                **self._keyword(self._own(kind), 0, kind),
            }
        ways: list[Callable[[], Schema]] = [
            lambda: {"type": chance.choice(_TYPES)},
            lambda: {"type": chance.choice(["string", "integer", "number", "boolean"])},
            lambda: {"enum": self._values()},
            lambda: {"type": "string", "pattern": chance.choice(self._patterns)},
            lambda: {"type": "string", "format": chance.choice(_FORMATS)},
            lambda: {"type": "string", "maxLength": chance.randint(0, 4)},
            lambda: {"type": "integer", "minimum": chance.randint(-1, 2)},
        ]
        if self.draft > 4:
            ways.append(lambda: {"const": self._value(1, None)})
        return chance.choice(ways)()

    def _own(self, kind: str) -> str:
        return self._chance.choice(_OF_TYPE[kind] or ("enum",))

    def _object(self, depth: int, kind: str | None = None) -> Schema:
        chance = self._chance
        if kind in {None, "object"} and chance.random() < 0.15:
            return self._union(depth)
        if self._is_wild:
            made = {} if chance.random() < 0.4 else {"type": self._type()}
            every = [*{name for names in _OF_TYPE.values() for name in names}, *_ANYWHERE]
            keywords = chance.sample(sorted(every), chance.randint(1, 5))
        else:
            kind = kind or chance.choice(_TYPES)
            made = {"type": self._type(kind)} if chance.random() < 0.85 else {}
            keywords = [
                self._own(kind) if chance.random() < _LIKELY else chance.choice(_ANYWHERE)
                for _ in range(chance.randint(1, 5))
            ]
        for keyword in keywords:
            made |= self._keyword(keyword, depth - 1, kind)
        return made

    def _type(self, named: str | None = None) -> Any:
        named = named or self._chance.choice(_TYPES)
        if self._chance.random() < 0.15:
            return sorted({named, self._chance.choice(_TYPES)})
        return named

    def _union(self, depth: int) -> Schema:
        """Return alternatives that a property tells apart, as pydantic and OpenAPI write them."""
        chance = self._chance
        kinds = chance.sample(["cat", "dog", "a", "b"], chance.randint(1, 3))
        tag = "enum" if self.draft == 4 or chance.random() < 0.3 else "const"
        branches = []
        for kind in kinds:
            branch = self._keyword("properties", depth - 1)
            said = {"enum": [kind]} if tag == "enum" else {"const": kind}
            branch["properties"]["kind"] = {"type": "string", **said} if chance.random() < 0.5 else said
            branch = {"type": "object", **branch}
            if chance.random() < 0.9:
                branch["required"] = ["kind"]
            if chance.random() < 0.5:
                branch["additionalProperties"] = False
            branches.append(branch)
        union = {chance.choice(["oneOf", "oneOf", "anyOf"]): branches}
        if chance.random() < 0.5:
            union["discriminator"] = {"propertyName": "kind"}
        return union if chance.random() < 0.7 else union | self._keyword("properties", 0)

    def _values(self, kind: str | None = None) -> list[Any]:
        found: dict[str, Any] = {}
        for _ in range(self._chance.randint(1, 4)):
            value = self._value(1, kind)
            found[repr(value)] = value
        return list(found.values())

    def _some(self) -> list[str]:
        return self._chance.sample(self._names, self._chance.randint(1, 2))

    def _inners(self, depth: int, most: int, kind: str | None = None) -> list[Any]:
        return [self._any(depth, kind) for _ in range(self._chance.randint(1, most))]

    def _bound(self, keyword: str) -> Schema:
        number = self._chance.choice([0, 1, 2, 3, -1, 1.5, 0.1, 10, 100, -2.5, 1e3])
        if self.draft == 4 and keyword.startswith("exclusive"):
            return {keyword: True, keyword[9:].lower(): number}
        return {keyword: number}

    def _keyword(self, keyword: str, depth: int, kind: str | None = None) -> Schema:
        """Return a keyword with its value, and what goes with it."""
        chance = self._chance
        if keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            return self._bound(keyword)
        if keyword in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"):
            number = chance.choice([0, 1, 1, 1, 2] if keyword.startswith("min") else [0, 1, 2, 2, 3, 4])
            return {keyword: float(number) if self.draft > 4 and chance.random() < 0.1 else number}
        made: dict[str, Callable[[], Any]] = {
            "multipleOf": lambda: chance.choice([1, 2, 3, 0.5, 0.01, 1.5, 10]),
            "pattern": lambda: chance.choice(self._patterns),
            "format": lambda: chance.choice(_FORMATS),
            "properties": lambda: {
                name: self._any(depth) for name in chance.sample(self._names, chance.randint(1, 3))
            },
            "required": self._some,
            "additionalProperties": lambda: chance.choice([False, False, True, self._any(depth)]),
            "unevaluatedProperties": lambda: chance.choice([False, False, True, self._any(depth)]),
            "unevaluatedItems": lambda: chance.choice([False, True, self._any(depth)]),
            "patternProperties": lambda: {
                chance.choice(self._patterns): self._any(depth) for _ in range(chance.choice([1, 1, 2]))
            },
            "propertyNames": lambda: chance.choice(
                [
                    *({"pattern": chance.choice(self._patterns)}, {"enum": self._some()}, {"maxLength": 1}),
                    *({"minLength": 1, "maxLength": 2}, {"type": "string"}, self._any(0, "string")),
                ]
            ),
            "dependencies": lambda: {
                chance.choice(self._names): chance.choice([self._some(), self._any(depth, "object")])
            },
            "dependentRequired": lambda: {chance.choice(self._names): self._some()},
            "dependentSchemas": lambda: {chance.choice(self._names): self._any(depth, "object")},
            "items": lambda: (
                self._inners(depth, 2) if self.draft < 2020 and chance.random() < 0.4 else self._any(depth)
            ),
            "additionalItems": lambda: chance.choice([False, self._any(depth)]),
            "prefixItems": lambda: self._inners(depth, 3),
            "uniqueItems": lambda: True,
            "allOf": lambda: self._inners(depth, 2, kind),
            "anyOf": lambda: self._inners(depth, 3, kind),
            "oneOf": lambda: self._inners(depth, 3, kind),
            "$ref": lambda: chance.choice(self._targets or ["#"]),
            "enum": lambda: self._values(kind),
            "const": lambda: self._value(2, kind),
        }
        if keyword == "annotations":
            return {name: _ANNOTATIONS[name] for name in chance.sample(sorted(_ANNOTATIONS), 2)}
        if keyword == "$ref" and not self._targets:
            return {}
        return {keyword: made[keyword]()}


def schema(chance: random.Random) -> Any:
    """Return a drawn schema."""
    return Drawing(chance).schema()
