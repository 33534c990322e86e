"""Which JSON schemas a rank may compile before a worker has: those that can only be as dear as they are long.

A worker can be killed and a rank cannot, so it is a short list: no keyword that makes one of several schemas,
no counts beyond a cap, and no pattern that counts groups or names properties of Unicode, which are short and
take long. A value of which two schemas say something may take the product of both, an enum beside a pattern
seconds: so a pattern or format stands alone, and so does a reference or a choice where there is one.
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
_ANOTHERS: Final = frozenset({"$ref", "anyOf"})
_BESIDE: Final = frozenset({"type", "$defs", "definitions"})
_NUMBER: Final = "(?:[1-5]?[0-9]|6[0-4])"  # up to the cap
_PATTERN: Final = re.compile(
    rf"(?:[^\\{{(]|\\[^pP]|\((?:\?:|(?!\?))|(?<![)*+?}}]){{{_NUMBER}(?:,{_NUMBER}?)?}})*", re.DOTALL
)


def is_plain(text: str) -> bool:
    """Return whether a rank may compile a schema's text, as a library is to have it."""
    if len(text) > _MOST_BYTES:
        return False
    parts = subschemas.within(json.loads(text))
    has_text = not all(map(_OF_TEXT.isdisjoint, parts))
    return all(map(_is_plain, parts)) and not (has_text and any(map(_is_of_two, parts)))


def _is_of_two(schema: Mapping[str, Any]) -> bool:
    """Return whether a text's keyword, or another schema, says something of what other keywords speak of."""
    return len(schema.keys() - _BESIDE) > 1 and not (_OF_TEXT | _ANOTHERS).isdisjoint(schema)


def _is_plain(schema: Mapping[str, Any]) -> bool:
    return all(
        keyword in _PLAIN
        or (keyword in _COUNTS and value <= _MOST_COUNT)
        or (keyword == "format" and value in formats.LIBRARYS)
        or (keyword == "pattern" and _PATTERN.fullmatch(value) is not None)
        for keyword, value in schema.items()
    )
