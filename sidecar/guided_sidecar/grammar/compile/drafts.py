"""Which JSON schemas a rank may compile before a worker has: those that can only be as dear as they are long.

A worker can be killed and a rank cannot, so it is a short list: no keyword that makes one of several schemas,
no counts beyond a cap, and no pattern that counts groups or names properties of Unicode, which are short and
take long. Nothing is said twice of a value: llguidance writes out what a reference names to put it together
with what stands beside it, and again below that, so that 2 KB take gigabytes, and an enum beside a pattern
seconds. What llguidance takes quadratic time for, or much for little text, is capped.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from guided_grammar.json_schema import subschemas
from guided_sidecar.grammar.schema import formats

_MOST_BYTES: Final = 64 << 10
_MOST_COUNT: Final = 64
_PLAIN: Final = frozenset(
    [
        "type",
        "enum",
        "const",
        "anyOf",
        "items",
        "prefixItems",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
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
_MOST_NAMES_SQUARED: Final = 1000**2  # of each object, together
_MOST_VALUES: Final = 1000  # arrays, objects and their names in enum and const
_NUMBER: Final = "(?:[1-5]?[0-9]|6[0-4])"  # up to the cap
_PATTERN: Final = re.compile(
    rf"(?:[^\\{{(]|\\[^pP]|\((?:\?:|(?!\?))|(?<![)*+?}}]){{{_NUMBER}(?:,{_NUMBER}?)?}})*", re.DOTALL
)


def is_plain(text: str) -> bool:
    """Return whether a rank may compile a schema's text, as a library is to have it."""
    if len(text) > _MOST_BYTES:
        return False
    parts = subschemas.within(json.loads(text))
    return (
        all(map(_is_plain, parts))
        and sum(map(_names, parts)) <= _MOST_NAMES_SQUARED
        and sum(map(_values, parts)) <= _MOST_VALUES
    )


def _is_plain(schema: Mapping[str, Any]) -> bool:
    said = schema.keys() - _DEFINITIONS
    if not _ALONE.isdisjoint(said):
        return len(said) == 1
    if not _WITH_TYPE.isdisjoint(said) and len(said - {"type"}) > 1:
        return False
    return all(
        keyword in _PLAIN
        or (keyword in _COUNTS and value <= _MOST_COUNT)
        or (keyword == "format" and value in formats.LIBRARYS)
        or (keyword == "pattern" and _PATTERN.fullmatch(value) is not None)
        for keyword, value in schema.items()
    )


def _names(schema: Mapping[str, Any]) -> int:
    """Return the square of how many names an object's keywords have: what llguidance's time grows with."""
    return (len(schema.get("properties", ())) + len(schema.get("required", ()))) ** 2


def _values(schema: Mapping[str, Any]) -> int:
    """Return how many arrays, objects and names of those stand in the values that a schema lists."""
    count, left = 0, [schema.get("enum"), [schema.get("const")]]
    while left:
        value = left.pop()
        below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        held = [one for one in below if isinstance(one, (dict, list))]
        count += len(held) + (len(below) if isinstance(value, dict) else 0)
        left += held
    return count
