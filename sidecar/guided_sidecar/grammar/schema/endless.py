"""Schemas that no finite value meets: each of their values has to hold another one of them, or nothing does.

A library begins such a value and never ends it. In a normal form it is what nothing meets, `false`, and so is
a reference to `false`.
"""

from typing import Any, Final

from guided_contract.errors import ErrorCode
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import NORMAL_LISTS, NORMAL_MAPS, NORMAL_SINGLE
from guided_sidecar.grammar.schema.disjoint import types
from guided_sidecar.grammar.schema.faults import fault

Schema = dict[str, Any]

_MOST_LOOKS: Final = 16  # at each part; a chain of references that is longer is not looked through


def cut(form: Any) -> Any:
    """Return a normal form without schemas that no finite value meets; what is given is changed.

    Raises
    ------
    GuidedError
        grammar_dead_end: none meets the whole.
    """
    parts = subschemas.within(form)
    if not any("$ref" in part for part in parts):
        return form
    endless = _endless(form, parts)
    if id(form) in endless:
        path = subschemas.find(form, "$ref") or "$"
        raise fault(path, "no finite value meets it", ErrorCode.GRAMMAR_DEAD_END)
    if endless:
        for part in parts:
            _replace(part, endless)
    return form


def _endless(form: Schema, parts: list[Schema]) -> set[int]:
    """Return which parts, by their id, no finite value meets; some may be missing."""
    endless = {id(part) for part in parts}
    targets = {part["$ref"]: subschemas.referred(form, part["$ref"]) for part in parts if "$ref" in part}
    for _ in range(_MOST_LOOKS):
        before = len(endless)
        for part in reversed(parts):  # from the innermost on, so that few rounds suffice
            if id(part) in endless and _ends(part, endless, targets):
                endless.remove(id(part))
        if len(endless) == before:
            return endless
    return set()


def _ends(part: Schema, endless: set[int], targets: Schema) -> bool:
    """Return whether some finite value meets a schema, if those that are called endless have none."""

    def is_finite(one: Any) -> bool:
        return id(one) not in endless

    if "const" in part or "enum" in part:
        return True
    target = targets[part["$ref"]] if "$ref" in part else True
    if target is False or not all(map(is_finite, [*part.get("allOf", ()), target])):
        return False
    if not any(map(is_finite, part.get("anyOf", [True]))):
        return False
    asked = {"array": _items, "object": _properties}
    return any(kind not in asked or all(map(is_finite, asked[kind](part))) for kind in types(part))


def _items(part: Schema) -> list[Any]:
    """Return the schemas of the items that an array must have."""
    least = part.get("minItems", 0)
    first: list[Any] = part.get("prefixItems", [])[:least]
    return [*first, part.get("items", True)] if least > len(first) else first


def _properties(part: Schema) -> list[Any]:
    """Return the schemas of the properties that an object must have."""
    known, further = part.get("properties", {}), part.get("additionalProperties", True)
    # A name that is not among the properties may be one of a pattern: nothing is said of it.
    return [known.get(name, "patternProperties" in part or further) for name in part.get("required", ())]


def _replace(part: Schema, endless: set[int]) -> None:
    def finite(one: Any) -> Any:
        return False if id(one) in endless else one

    for keyword in part.keys() & NORMAL_SINGLE:
        part[keyword] = finite(part[keyword])
    for keyword in part.keys() & NORMAL_MAPS:
        part[keyword] = {name: finite(one) for name, one in part[keyword].items()}
    for keyword in part.keys() & NORMAL_LISTS:
        part[keyword] = [finite(one) for one in part[keyword]]
