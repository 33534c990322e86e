"""Whether one keyword rules alone where others stand.

xgrammar 0.2.8 reads a schema by the first of $ref, const, enum, anyOf and allOf that it finds there, and
nothing beside it (measured by random walks).
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import jsonschema

from guided_grammar.json_schema.keywords import CONSTRAINTS
from guided_grammar.json_schema.subschemas import ROOT, Place

_MOST_WORK: Final = 1 << 18  # every value is compared with a whole schema
RULERS: Final = ("$ref", "const", "enum", "anyOf", "allOf")


def is_ruled_alone(place: Place) -> bool:
    """Return whether xgrammar would read one keyword here and ignore a constraint beside it."""
    ruler = next((keyword for keyword in RULERS if keyword in place.schema), None)
    beside = {key: place.schema[key] for key in place.schema.keys() & CONSTRAINTS - {ruler}}
    if ruler is None or not beside:
        return False
    if ruler in ("const", "enum"):
        values = place.schema["enum"] if ruler == "enum" else [place.schema["const"]]
        return not _all_meet(beside, values)
    if ruler in ("anyOf", "allOf") and beside.keys() == {"type"}:
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
