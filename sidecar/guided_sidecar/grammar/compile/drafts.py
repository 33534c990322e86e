"""Which JSON schemas a rank may compile before a worker has: those of which it is known what they take.

A worker can be killed and a rank cannot, so it is a short list: no keyword that makes one of several schemas,
no counts beyond a cap, and no pattern that counts groups or names properties of Unicode, which are short and
take long. Nothing is said twice of a value: llguidance writes out what a reference names to put it together
with what stands beside it, and again below that, so that 2 KB take gigabytes, and an enum beside a pattern
seconds. References name definitions, so that no value that a schema lists is one of its parts.

Of what is left, each part has a price, in microseconds of llguidance 1.7.6 on one core of a small machine,
and all together a budget.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from guided_grammar.json_schema import subschemas
from guided_sidecar.grammar.schema import formats

_MOST_BYTES: Final = 64 << 10
_MOST_COUNT: Final = 64
_BUDGET_US: Final = 120_000
_PLAIN: Final = frozenset(
    [
        "type",
        "enum",
        "const",
        "anyOf",
        "items",
        "prefixItems",
        "properties",
        "required",
        "additionalProperties",
        "$ref",
        "$defs",
        "definitions",
    ]
)
_COUNTS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength"})
_OF_TEXT: Final = frozenset({"format", "pattern"})
# What stands beside each of these: of a reference and a choice nothing, of the others their type.
_ALONE: Final = frozenset({"$ref", "anyOf"})
_WITH_TYPE: Final = frozenset({"enum", "const", *_OF_TEXT})
_DEFINITIONS: Final = frozenset({"$defs", "definitions"})
_REFERENCE: Final = re.compile(r"#(?:/(?:\$defs|definitions)/[\w.-]+)?")
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_NUMBER: Final = "(?:[1-5]?[0-9]|6[0-4])"  # up to the cap
_PATTERN: Final = re.compile(
    rf"(?:[^\\{{(]|\\[^pP]|\((?:\?:|(?!\?))|(?<![)*+?}}]){{{_NUMBER}(?:,{_NUMBER}?)?}})*", re.DOTALL
)


def is_plain(text: str) -> bool:
    """Return whether a rank may compile a schema's text, as a library is to have it."""
    if len(text.encode()) > _MOST_BYTES:
        return False
    schema = json.loads(text)
    parts = subschemas.within(schema)
    has_inner = any(not _DEFINITIONS.isdisjoint(part) for part in parts[1:])
    return not has_inner and all(map(_is_plain, parts)) and sum(map(_price_us, parts)) <= _BUDGET_US


def _is_plain(schema: Mapping[str, Any]) -> bool:
    said = schema.keys() - _DEFINITIONS
    if not _ALONE.isdisjoint(said):
        return len(said) == 1 and _REFERENCE.fullmatch(schema.get("$ref", "#")) is not None
    if not _WITH_TYPE.isdisjoint(said) and len(said - {"type"}) > 1:
        return False
    types = schema.get("type")
    if isinstance(types, list) and len(set(types)) < len(types):
        return False
    return all(
        keyword in _PLAIN
        or keyword in _BOUNDS
        or (keyword in _COUNTS and value <= _MOST_COUNT)
        or (keyword == "format" and value in formats.LIBRARYS)
        or (keyword == "pattern" and _PATTERN.fullmatch(value) is not None)
        for keyword, value in schema.items()
    )


def _price_us(schema: Mapping[str, Any]) -> float:
    """Return what a part takes, without those below it."""
    names = len(schema.get("properties", ())) + len(schema.get("required", ()))
    pattern: str = schema.get("pattern", "")
    points = sum(letter > "\x7f" or letter == "\\" for letter in pattern)  # of characters' classes, at most
    price: float = (
        10
        + 45 * names
        + 0.05 * names**2
        + 700 * ("format" in schema)
        + 2 * len(pattern)
        + 8 * points
        + 0.01 * points**2
        + 600 * len(_BOUNDS & schema.keys())
        + _price_of_values_us([*schema.get("enum", ()), schema.get("const")])
    )
    return price


def _price_of_values_us(values: list[Any]) -> float:
    """Return what the values that a schema lists take."""
    price = 0.0
    while values:
        value = values.pop()
        if isinstance(value, dict):
            price += 80 + 45 * len(value) + 0.05 * len(value) ** 2
            values += value.values()
        elif isinstance(value, list):
            price += 80
            values += value
        else:
            price += 60 if isinstance(value, float) else 5
    return price
