"""Whether an answer can meet two branches of `oneOf`, and whether one keyword rules alone where others stand.

xgrammar 0.2.8 reads a schema by the first of $ref, const, enum, anyOf, oneOf and allOf that it finds there,
and nothing beside it; and it takes oneOf for anyOf where branches meet (both measured by random walks).
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import jsonschema

from guided_grammar.json_schema.keywords import CONSTRAINTS
from guided_grammar.json_schema.subschemas import ROOT, Place

# Every branch is compared with every other, and every value with a whole schema.
_MOST_BRANCHES: Final = 128
_MOST_WORK: Final = 1 << 18
_RULERS: Final = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
# What branches and references evaluate is not known here: beside those, these say something of their own.
_BESIDE: Final = CONSTRAINTS | {"unevaluatedItems", "unevaluatedProperties"}


def are_apart(branches: Sequence[Any]) -> bool:
    """Return whether no value meets two of the branches; False also where that is not plain to see."""
    if len(branches) > _MOST_BRANCHES:
        return False
    return all(_apart(one, other) for index, one in enumerate(branches) for other in branches[index + 1 :])


def is_ruled_alone(place: Place) -> bool:
    """Return whether xgrammar would read one keyword here and ignore a constraint beside it."""
    ruler = next((keyword for keyword in _RULERS if keyword in place.schema), None)
    beside = {key: place.schema[key] for key in place.schema.keys() & _BESIDE - {ruler}}
    if ruler is None or not beside:
        return False
    if ruler in ("const", "enum"):
        values = place.schema["enum"] if ruler == "enum" else [place.schema["const"]]
        return not _all_meet(beside, values)
    if ruler in ("anyOf", "oneOf", "allOf") and beside.keys() == {"type"}:
        branches = [
            Place(ROOT, {} if branch is True else branch)
            for branch in place.schema[ruler]
            if branch is not False
        ]
        return not all(branch.types() and branch.types() <= place.types() for branch in branches)
    return True


def _all_meet(schema: dict[str, Any], values: Sequence[Any]) -> bool:
    """Return whether all values are valid; False where that cannot be told, or not soon.

    Python reads not every pattern and may take for ever over one; and what a later draft than the schema's
    own calls a keyword may hold anything.
    """
    text = json.dumps(schema)
    if "$ref" in text or "pattern" in text or len(text) * len(values) > _MOST_WORK:
        return False
    try:
        return all(map(jsonschema.Draft202012Validator(schema).is_valid, values))
    except (AttributeError, TypeError, ValueError):
        return False


def _apart(one: Any, other: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict) or "$ref" in one or "$ref" in other:
        return False
    values, others = _values(one), _values(other)
    if values is not None and others is not None:
        return values.isdisjoint(others)
    if _types(one).isdisjoint(_types(other)):
        return True
    if _types(one) != {"object"} or _types(other) != {"object"}:
        return False
    # As with a discriminator: a property that both require, and that differs.
    shared = set(one.get("required", ())) & set(other.get("required", ()))
    return any(
        _apart(one["properties"][name], other["properties"][name])
        for name in shared
        if name in one.get("properties", {}) and name in other.get("properties", {})
    )


def _values(schema: dict[str, Any]) -> set[str] | None:
    """Return the values that a schema lists, as text in which 1 and 1.0 are one; None: it lists none."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if listed is None else {_text(value) for value in listed}


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def _types(schema: dict[str, Any]) -> set[str]:
    """Return the JSON types that a schema takes, integers among the numbers; all where it names none."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if listed is not None:
        return {_type(value) for value in listed}
    named = Place(ROOT, schema).types() or {"array", "boolean", "null", "number", "object", "string"}
    return {"number" if name == "integer" else name for name in named}


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")
