"""JSON Schema's keywords, those of the normal form, and what one schema says in them."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple


class Keyword(NamedTuple):
    """What is known of a keyword; definitions and annotations are none.

    Attributes
    ----------
    since, until
        The first draft that knows it, and the last.
    of_type
        The type of values of which alone it says something; None: of any.
    is_normal
        Whether it is a word of the normal form, in which any schema is written when a library is asked
        about it.
    """

    since: int
    of_type: str | None = None
    is_normal: bool = True
    until: int = 2020


# `dependencies` is one for whoever writes it.
KEYWORDS: Final = {
    "$dynamicRef": Keyword(2020, is_normal=False),
    "$recursiveRef": Keyword(2019, is_normal=False, until=2019),
    "$ref": Keyword(4),
    "additionalItems": Keyword(4, "array", is_normal=False),
    "additionalProperties": Keyword(4, "object"),
    "allOf": Keyword(4),
    "anyOf": Keyword(4),
    "const": Keyword(6),
    "contains": Keyword(6, "array", is_normal=False),
    "dependencies": Keyword(4, "object", is_normal=False),
    "dependentRequired": Keyword(2019, "object", is_normal=False),
    "dependentSchemas": Keyword(2019, "object", is_normal=False),
    "else": Keyword(7, is_normal=False),
    "enum": Keyword(4),
    "exclusiveMaximum": Keyword(4, "number"),
    "exclusiveMinimum": Keyword(4, "number"),
    "format": Keyword(4, "string"),
    "if": Keyword(7, is_normal=False),
    "items": Keyword(4, "array"),
    "maxContains": Keyword(2019, "array", is_normal=False),
    "maxItems": Keyword(4, "array"),
    "maxLength": Keyword(4, "string"),
    "maxProperties": Keyword(4, "object"),
    "maximum": Keyword(4, "number"),
    "minContains": Keyword(2019, "array", is_normal=False),
    "minItems": Keyword(4, "array"),
    "minLength": Keyword(4, "string"),
    "minProperties": Keyword(4, "object"),
    "minimum": Keyword(4, "number"),
    "multipleOf": Keyword(4, "number"),
    "not": Keyword(4, is_normal=False),
    "oneOf": Keyword(4, is_normal=False),
    "pattern": Keyword(4, "string"),
    "patternProperties": Keyword(4, "object"),
    "prefixItems": Keyword(2020, "array"),
    "properties": Keyword(4, "object"),
    "propertyNames": Keyword(6, "object", is_normal=False),
    "required": Keyword(4, "object"),
    "then": Keyword(7, is_normal=False),
    "type": Keyword(4),
    "unevaluatedItems": Keyword(2019, "array", is_normal=False),
    "unevaluatedProperties": Keyword(2019, "object", is_normal=False),
    "uniqueItems": Keyword(4, "array"),
}
OF_TYPE: Final = {name: one.of_type for name, one in KEYWORDS.items() if one.of_type is not None}
DEFINITIONS: Final = ("$defs", "definitions")
CONSTRAINTS: Final = frozenset(name for name, one in KEYWORDS.items() if one.is_normal)
NORMAL_FORM: Final = CONSTRAINTS.union(DEFINITIONS)
# Of these, what holds one schema, a list of schemas, or schemas by name; definitions apart.
NORMAL_SINGLE: Final = ("additionalProperties", "items")
NORMAL_LISTS: Final = ("allOf", "anyOf", "prefixItems")
NORMAL_MAPS: Final = ("properties", "patternProperties")
BRANCHES: Final = ("allOf", "anyOf")
LENGTHS: Final = ("minLength", "maxLength")
BOUNDS: Final = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum")
_NO_CONSTRAINT: Final = frozenset([*DEFINITIONS, "$ref", *BRANCHES])
_TEXTS: Final = frozenset(["const", "enum", "format", "pattern"])

ANY: Final[dict[str, Any]] = {}
_BEGINNING: Final = re.compile(r"\^([A-Za-z0-9_-]+)(?![*+?{])")
_LONGEST: Final = 1 << 31  # characters, more than any text has; what is larger may not fit the wire

Text = tuple[int, int | None]  # the bounds of a string that takes any characters


def numbers(value: Any) -> Iterator[float]:
    """Yield all numbers in a value that was read from JSON."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            stack += part.values()
        elif isinstance(part, list):
            stack += part
        elif type(part) in {int, float}:
            yield part


def has_lengths(schema: dict[str, Any]) -> bool:
    """Return whether a schema bounds the length of strings."""
    return "maxLength" in schema or "minLength" in schema


def asserts(schema: dict[str, Any]) -> bool:
    """Return whether something stands beside references and branches."""
    return not _NO_CONSTRAINT.issuperset(schema)


def text(schema: dict[str, Any]) -> Text | None:
    """Return (minLength, maxLength) of a schema's strings; None if it asks more of them than a length."""
    if not _TEXTS.isdisjoint(schema):
        return None
    if "type" not in schema and has_lengths(schema):
        return None  # without a type, the libraries differ in what it means
    minimum, maximum = schema.get("minLength", 0), schema.get("maxLength")
    most = _LONGEST if maximum is None else min(maximum, _LONGEST)
    return None if minimum > most else (minimum, None if maximum is None else most)


def of_name(schemas: list[dict[str, Any]], name: str) -> Iterator[Any]:
    """Yield every subschema that applies to the property `name` in one of `schemas`."""
    for schema in schemas:
        own = schema.get("properties", ANY)
        if name in own:
            yield own[name]
            patterns = schema.get("patternProperties", ANY)
            yield from (part for pattern, part in patterns.items() if _may_match(pattern, name))
        else:
            yield from of_other_names(schema)


def beginning(pattern: str) -> str | None:
    """Return how each text begins that matches a pattern, as far as that is plain; None: it is not."""
    begun = _BEGINNING.match(pattern)
    return None if begun is None or "|" in pattern else begun[1]


def _may_match(pattern: str, name: str) -> bool:
    """Return whether a name may match a pattern; it does not if it begins otherwise than that says."""
    return name.startswith(beginning(pattern) or "")


def of_other_names(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield every subschema that applies to a property that `properties` does not name."""
    yield from schema.get("patternProperties", ANY).values()
    yield schema.get("additionalProperties", True)


def is_understood(schema: dict[str, Any]) -> bool:
    """Return whether it is known how both libraries write all that a schema lists."""
    if any(isinstance(value, dict | list) for value in [*schema.get("enum", ()), schema.get("const")]):
        return False
    return all(name.isprintable() for name in schema.get("properties", ()))
