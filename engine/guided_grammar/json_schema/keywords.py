"""The words of a schema's normal form, and what one schema says in them of strings, properties and items."""

import re
from collections.abc import Iterator
from typing import Any, Final

LENGTHS: Final = ("minLength", "maxLength")
# The words of the normal form: what any schema is written in when a library is asked about it.
NORMAL_FORM: Final = frozenset(
    [
        "$defs",
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "definitions",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "patternProperties",
        "prefixItems",
        "properties",
        "required",
        "type",
        "uniqueItems",
    ]
)
# Of these, what holds one schema, a list of schemas, or schemas by name; definitions apart.
NORMAL_SINGLE: Final = ("additionalProperties", "items")
NORMAL_LISTS: Final = ("allOf", "anyOf", "prefixItems")
NORMAL_MAPS: Final = ("properties", "patternProperties")
BRANCHES: Final = ("allOf", "anyOf")
_DEFINITIONS: Final = frozenset(["$defs", "definitions"])
CONSTRAINTS: Final = NORMAL_FORM - _DEFINITIONS
_NO_CONSTRAINT: Final = _DEFINITIONS | {"$ref", *BRANCHES}
_TEXTS: Final = frozenset(["const", "enum", "format", "pattern"])

ANY: Final[dict[str, Any]] = {}
_BEGINNING: Final = re.compile(r"\^([A-Za-z0-9_-]+)(?![*+?{])")
_LONGEST: Final = 1 << 31  # characters, more than any text has; what is larger may not fit the wire

Text = tuple[int, int | None]  # the bounds of a string that takes any characters


BOUNDS: Final = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum")


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


def allows(schema: dict[str, Any], kind: str) -> bool:
    """Return whether a schema allows some value of the JSON type `kind`, by type, enum and const alone."""
    named = schema.get("type", kind)
    if kind != named and kind not in named:
        return False
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return values is None or (kind == "string" and any(isinstance(value, str) for value in values))


def text(schema: dict[str, Any]) -> Text | None:
    """Return (minLength, maxLength) of a schema's strings; None if it asks more of them than a length."""
    if not _TEXTS.isdisjoint(schema):
        return None
    if "type" not in schema and has_lengths(schema):
        return None  # without a type, the libraries differ in what it means
    maximum = schema.get("maxLength")
    minimum, maximum = (
        int(schema.get("minLength", 0)),
        None if maximum is None else min(int(maximum), _LONGEST),
    )
    return None if minimum > (_LONGEST if maximum is None else maximum) else (minimum, maximum)


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


def _may_match(pattern: str, name: str) -> bool:
    """Return whether a name may match a pattern; it does not if it begins otherwise than that says."""
    begun = _BEGINNING.match(pattern)
    return begun is None or "|" in pattern or name.startswith(begun[1])


def of_other_names(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield every subschema that applies to a property that `properties` does not name."""
    yield from schema.get("patternProperties", ANY).values()
    yield schema.get("additionalProperties", True)


def is_understood(schema: dict[str, Any]) -> bool:
    """Return whether it is known how both libraries write all that a schema lists."""
    if any(isinstance(value, dict | list) for value in [*schema.get("enum", ()), schema.get("const")]):
        return False
    return all(name.isprintable() for name in schema.get("properties", ()))
