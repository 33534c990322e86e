"""Schemas that no value meets, as their bounds say: a library finds out late, and names no keyword."""

from typing import Any, Final, NamedTuple

from guided_grammar.json_schema.keywords import OF_TYPE
from guided_sidecar.grammar.schema.limits import shown


class Empty(NamedTuple):
    """Why no value meets a schema, and which of its keywords says so."""

    keyword: str
    reason: str


class _Bounds(NamedTuple):
    """Two keywords of values of one type; `may_meet`: whether a value may be at both bounds."""

    least: str
    most: str
    words: str
    may_meet: bool = True


_ALL: Final = (
    _Bounds("minLength", "maxLength", "string has at least {} and at most {} characters"),
    _Bounds("minItems", "maxItems", "array has at least {} and at most {} items"),
    _Bounds("minProperties", "maxProperties", "object has {} properties or more, and at most {}"),
    _Bounds("minimum", "maximum", "number is at least {} and at most {}"),
    _Bounds("exclusiveMinimum", "maximum", "number is above {} and at most {}", may_meet=False),
    _Bounds("minimum", "exclusiveMaximum", "number is at least {} and below {}", may_meet=False),
    _Bounds("exclusiveMinimum", "exclusiveMaximum", "number is above {} and below {}", may_meet=False),
)
# A schema without any of them is never found empty here.
_KEYWORDS: Final = frozenset({"enum", "required"} | {bounds.most for bounds in _ALL})


def reason(said: dict[str, Any]) -> Empty | None:
    """Return why no value meets what a schema says itself; None: some may, if only of another type."""
    if _KEYWORDS.isdisjoint(said):
        return None
    if said.get("enum") == []:
        return Empty("enum", "it lists no value")
    named = said.get("type", ())
    types = {
        "number" if name == "integer" else name for name in ([named] if isinstance(named, str) else named)
    }
    if types == {"object"} and said.get("additionalProperties") is False and "patternProperties" not in said:
        for name in said.get("required", ()):
            if name not in said.get("properties", ()):
                return Empty("required", f"{shown(name)} is no property that this closed object declares")
    for bounds in _ALL:
        if bounds.least not in said or bounds.most not in said or types != {OF_TYPE[bounds.least]}:
            continue
        least, most = said[bounds.least], said[bounds.most]
        if least > most or (least == most and not bounds.may_meet):
            return Empty(bounds.least, f"no {bounds.words.format(least, most)}")
    return None
