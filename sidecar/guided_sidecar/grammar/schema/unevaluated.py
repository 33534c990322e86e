"""Writes `unevaluatedProperties` and `unevaluatedItems` as `additionalProperties` and `items`.

Only one library enforces the first two, in some places, and takes long over it. Where nothing beside them
judges the same object or array they mean the same as the others, and beside these they mean nothing.
"""

from typing import Any, Final

from guided_grammar.json_schema import subschemas

_DIALECTS: Final = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
)
# What these evaluate in the same object or array is no concern of `additionalProperties` and `items`.
_IN_PLACE: Final = frozenset(
    [
        "$dynamicRef",
        "$recursiveRef",
        "$ref",
        "allOf",
        "anyOf",
        "dependentSchemas",
        "else",
        "if",
        "not",
        "oneOf",
        "then",
    ]
)


def write_out(schema: Any) -> None:
    """Rewrite a checked schema in place; of a draft that does not know the keywords, nothing."""
    if not isinstance(schema, dict):
        return
    dialect = str(schema.get("$schema", _DIALECTS[0])).removesuffix("#")
    if dialect not in _DIALECTS:
        return
    for part in subschemas.within(schema):
        _write(part, "unevaluatedProperties", "additionalProperties", hidden="patternProperties")
        if dialect == _DIALECTS[0]:
            _write(part, "unevaluatedItems", "items", hidden="contains")


def _write(part: dict[str, Any], keyword: str, meant: str, *, hidden: str) -> None:
    """Write one keyword as the other; `hidden` names what only the first takes note of, or few understand."""
    if keyword not in part:
        return
    if meant in part:
        del part[keyword]  # everything is evaluated
    elif hidden not in part and _IN_PLACE.isdisjoint(part):
        part[meant] = part.pop(keyword)
