"""Which JSON schemas a rank may compile before a worker has: those that can only be as dear as they are long.

A worker can be killed and a rank cannot, so it is a short list: no pattern or format, which may be short and
take for ever, no counts beyond a cap, and no keyword that makes one of several schemas.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from guided_grammar.json_schema import subschemas

_MOST_BYTES: Final = 64 << 10
_MOST_COUNT: Final = 64
_PLAIN: Final = frozenset(
    [
        "type",
        "enum",
        "const",
        "anyOf",
        "items",
        "properties",
        "required",
        "additionalProperties",
        "$ref",
        "$defs",
    ]
)
_COUNTS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength"})


def is_plain(text: str) -> bool:
    """Return whether a rank may compile a schema's text, as a library is to have it."""
    return len(text) <= _MOST_BYTES and all(map(_is_plain, subschemas.within(json.loads(text))))


def _is_plain(schema: Mapping[str, Any]) -> bool:
    return all(
        keyword in _PLAIN or (keyword in _COUNTS and value <= _MOST_COUNT)
        for keyword, value in schema.items()
    )
