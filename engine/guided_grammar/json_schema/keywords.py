"""What one schema says of strings, properties and items, for following the places of a value.

Only keywords that are understood are followed; a schema with another is one that takes anything. A schema is
checked by its own draft, so keywords of later ones may hold anything here.
"""

from collections.abc import Iterator
from typing import Any, Final

from guided_grammar.json_schema.subschemas import referred

LENGTHS: Final = ("minLength", "maxLength")
_ANNOTATIONS: Final = frozenset(
    [
        "$comment",
        "$defs",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "discriminator",
        "example",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    ]
)
BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_TEXTS: Final = frozenset(["const", "contentEncoding", "contentMediaType", "enum", "format", "pattern"])
_VALUES: Final = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "maxItems",
        "maxProperties",
        "maximum",
        "minItems",
        "minProperties",
        "minimum",
        "multipleOf",
        "patternProperties",
        "prefixItems",
        "properties",
        "propertyNames",
        "required",
        "type",
        "uniqueItems",
    ]
)
CONSTRAINTS: Final = (_TEXTS | _VALUES | {"$ref", *BRANCHES, *LENGTHS}) - {
    "contentEncoding",
    "contentMediaType",
}
_UNDERSTOOD: Final = _ANNOTATIONS | _TEXTS | CONSTRAINTS

ANY: Final[dict[str, Any]] = {}
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


class UndecidableError(Exception):
    """A schema refers to what is not found, holds no schema where one is due, or has too many places."""


def has_lengths(schema: dict[str, Any]) -> bool:
    """Return whether a schema bounds the length of strings."""
    return "maxLength" in schema or "minLength" in schema


def asserts(schema: dict[str, Any]) -> bool:
    """Return whether something stands beside references and branches that is more than a comment."""
    return not (_ANNOTATIONS | {"$ref", *BRANCHES}).issuperset(schema)


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
            yield from schema.get("patternProperties", ANY).values()
        else:
            yield from of_other_names(schema)


def of_other_names(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield every subschema that applies to a property that `properties` does not name."""
    yield from schema.get("patternProperties", ANY).values()
    yield schema.get("additionalProperties", True)


def first_items(schema: dict[str, Any]) -> list[Any]:
    """Return what holds for the first items of an array.

    Raises
    ------
    UndecidableError
        That is no list.
    """
    items = schema.get("items")
    prefix = items if isinstance(items, list) else schema.get("prefixItems", [])
    if not isinstance(prefix, list):
        raise UndecidableError
    return prefix


def other_items(schema: dict[str, Any]) -> Any:
    """Return what holds for the items behind them."""
    items = schema.get("items", True)
    return schema.get("additionalItems", True) if isinstance(items, list) else items


def target(root: Any, reference: Any) -> Any:
    """Return what a reference within the schema `root` names.

    Raises
    ------
    UndecidableError
        It names nothing there, or not by a plain path.
    """
    if not isinstance(reference, str):
        raise UndecidableError
    if (reference != "#" and not reference.startswith("#/")) or "%" in reference:
        raise UndecidableError
    try:
        return referred(root, reference)
    except LookupError as error:
        raise UndecidableError from error


def is_understood(schema: dict[str, Any], *, is_root: bool) -> bool:
    """Return whether a schema has only keywords that are understood here; `$id` is, at the root alone."""
    unknown = schema.keys() - _UNDERSTOOD
    if unknown and not (is_root and unknown == {"$id"}):
        return False
    if any(isinstance(value, dict | list) for value in [*schema.get("enum", ()), schema.get("const")]):
        return False
    # Of other names it is not known how both libraries write them.
    return all(name.isprintable() for name in schema.get("properties", ()))
