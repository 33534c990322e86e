"""JSON Schema's keywords, those of the normal form, and what one schema says in them."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple


class Keyword(NamedTuple):
    """What is known of a keyword; definitions and annotations are none.

    Attributes
    ----------
    of_type
        The type of values of which alone it says something; None: of any.
    since
        The first draft that knows it.
    is_normal
        Whether it is a word of the normal form, in which any schema is written when a library is asked
        about it.
    """

    of_type: str | None
    since: int
    is_normal: bool


# `dependencies` is one for whoever writes it.
_KNOWN: Final = (
    (Keyword(None, 4, True), "$ref allOf anyOf enum type"),
    (Keyword(None, 6, True), "const"),
    (Keyword(None, 4, False), "not oneOf"),
    (Keyword(None, 7, False), "else if then"),
    (Keyword(None, 2019, False), "$recursiveRef"),
    (Keyword(None, 2020, False), "$dynamicRef"),
    (Keyword("array", 4, True), "items maxItems minItems uniqueItems"),
    (Keyword("array", 2020, True), "prefixItems"),
    (Keyword("array", 4, False), "additionalItems"),
    (Keyword("array", 6, False), "contains"),
    (Keyword("array", 2019, False), "maxContains minContains unevaluatedItems"),
    (Keyword("number", 4, True), "exclusiveMaximum exclusiveMinimum maximum minimum multipleOf"),
    (Keyword("object", 4, True), "additionalProperties maxProperties minProperties"),
    (Keyword("object", 4, True), "patternProperties properties required"),
    (Keyword("object", 4, False), "dependencies"),
    (Keyword("object", 6, False), "propertyNames"),
    (Keyword("object", 2019, False), "dependentRequired dependentSchemas unevaluatedProperties"),
    (Keyword("string", 4, True), "format maxLength minLength pattern"),
)
KEYWORDS: Final = {name: known for known, names in _KNOWN for name in names.split()}
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
