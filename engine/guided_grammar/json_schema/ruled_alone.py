"""Whether one keyword rules alone where others stand.

xgrammar 0.2.8 reads a schema by the first of $ref, const, enum, anyOf and allOf that it finds there, and
nothing beside it (measured by random walks).
"""

from typing import Final

from guided_grammar.json_schema.keywords import CONSTRAINTS
from guided_grammar.json_schema.subschemas import ROOT, Place

RULERS: Final = ("$ref", "const", "enum", "anyOf", "allOf")


def is_ruled_alone(place: Place) -> bool:
    """Return whether xgrammar would read one keyword here and ignore a constraint beside it."""
    ruler = next((keyword for keyword in RULERS if keyword in place.schema), None)
    beside = {key: place.schema[key] for key in place.schema.keys() & CONSTRAINTS - {ruler}}
    if ruler is None or not beside:
        return False
    if ruler in ("anyOf", "allOf") and beside.keys() == {"type"}:
        branches = [
            Place(ROOT, {} if branch is True else branch)
            for branch in place.schema[ruler]
            if branch is not False
        ]
        return not all(branch.types() and branch.types() <= place.types() for branch in branches)
    return True
