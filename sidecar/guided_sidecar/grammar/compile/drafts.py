"""Which JSON schemas a rank may compile before a worker has: those that can only be as dear as they are long.

A worker can be killed and a rank cannot, so it is a short list: no keyword that makes one of several schemas,
no counts beyond a cap, no pattern that counts groups or names properties of Unicode, which are short and take
long, and no string of which two keywords say something: that is the product of both.
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
_OF_STRINGS: Final = frozenset({*_OF_TEXT, "minLength", "maxLength"})
_NUMBER: Final = "(?:[1-5]?[0-9]|6[0-4])"  # up to the cap
_PATTERN: Final = re.compile(
    rf"(?:[^\\{{(]|\\[^pP]|\((?:\?:|(?!\?))|(?<![)*+?}}]){{{_NUMBER}(?:,{_NUMBER}?)?}})*", re.DOTALL
)


def is_plain(text: str) -> bool:
    """Return whether a rank may compile a schema's text, as a library is to have it."""
    return len(text) <= _MOST_BYTES and all(map(_is_plain, subschemas.within(json.loads(text))))


def _is_plain(schema: Mapping[str, Any]) -> bool:
    is_one = _OF_TEXT.isdisjoint(schema) or len(_OF_STRINGS & schema.keys()) == 1
    return is_one and all(
        keyword in _PLAIN
        or (keyword in _COUNTS and value <= _MOST_COUNT)
        or (keyword == "format" and value in formats.LIBRARYS)
        or (keyword == "pattern" and _PATTERN.fullmatch(value) is not None)
        for keyword, value in schema.items()
    )
