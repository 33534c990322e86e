"""Schemas that no value meets, as their bounds say: a library finds out late, and names no keyword."""

from typing import Any, Final, NamedTuple

from guided_grammar.json_schema.subschemas import ROOT, Place


class Empty(NamedTuple):
    """Why no value meets a schema, and which of its keywords says so."""

    keyword: str
    reason: str


class _Bounds(NamedTuple):
    """Two keywords of values of some types; `may_meet`: whether a value may be at both bounds."""

    least: str
    most: str
    types: frozenset[str]
    words: str
    may_meet: bool = True


_NUMBERS: Final = frozenset({"integer", "number"})
_ALL: Final = (
    _Bounds(
        "minLength", "maxLength", frozenset({"string"}), "string has at least {} and at most {} characters"
    ),
    _Bounds("minItems", "maxItems", frozenset({"array"}), "array has at least {} and at most {} items"),
    _Bounds(
        "minProperties",
        "maxProperties",
        frozenset({"object"}),
        "object has {} properties or more, and at most {}",
    ),
    _Bounds("minimum", "maximum", _NUMBERS, "number is at least {} and at most {}"),
    _Bounds("exclusiveMinimum", "maximum", _NUMBERS, "number is above {} and at most {}", may_meet=False),
    _Bounds("minimum", "exclusiveMaximum", _NUMBERS, "number is at least {} and below {}", may_meet=False),
    _Bounds(
        "exclusiveMinimum", "exclusiveMaximum", _NUMBERS, "number is above {} and below {}", may_meet=False
    ),
)
# A schema without any of them is never found empty here.
_KEYWORDS: Final = frozenset({"enum"} | {bounds.most for bounds in _ALL})


def reason(schema: dict[str, Any]) -> Empty | None:
    """Return why no value meets what a schema says itself; None: some may, if only of another type."""
    if _KEYWORDS.isdisjoint(schema):
        return None
    if schema.get("enum") == []:
        return Empty("enum", "it lists no value")
    for bounds in _ALL:
        if bounds.least not in schema or bounds.most not in schema:
            continue
        types = Place(ROOT, schema).types()
        least, most = _number(schema[bounds.least]), _number(schema[bounds.most])
        if not types or not types <= bounds.types or least is None or most is None:
            continue
        if least > most or (least == most and not bounds.may_meet):
            return Empty(bounds.least, f"no {bounds.words.format(least, most)}")
    return None


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
