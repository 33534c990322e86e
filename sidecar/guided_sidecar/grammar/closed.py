"""What a schema leaves unsaid about further properties, said the same for both libraries.

xgrammar, as vLLM runs it, generates no property that a schema does not name; llguidance generates any. Which
library `Auto` takes must not show in what is generated, so a schema is closed before either compiles it,
where closing cannot contradict what it does say. All that is then generated is valid under the schema as it
was written.
"""

import copy
from typing import Any, Final

from guided_sidecar.grammar import subschemas
from guided_sidecar.grammar.subschemas import Place

# Several schemas judge one object, and closing one of them would forbid what another asks for; or the
# schema says in another way what else an object may hold.
_COMPOSING: Final = frozenset(
    [
        "allOf",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "not",
        "oneOf",
        "then",
        "unevaluatedProperties",
        "$dynamicRef",
        "$recursiveRef",
    ]
)
# Beside `properties` these may ask for properties that it does not name.
_OPENING: Final = frozenset(
    ["$ref", "additionalProperties", "anyOf", "minProperties", "patternProperties", "propertyNames"]
)


def close(schema: Any) -> Any:
    """Return the schema with `additionalProperties: false` where it names properties and is silent on others.

    A schema that composes objects of several schemas comes back as it is.
    """
    closed = copy.deepcopy(schema)
    places = list(subschemas.walk(closed))
    if any(not _COMPOSING.isdisjoint(place.schema) for place in places):
        return schema
    for place in places:
        if _is_silent(place):
            place.schema["additionalProperties"] = False
    return closed


def _is_silent(place: Place) -> bool:
    properties = place.schema.get("properties")
    if properties is None or not place.allows("object") or not _OPENING.isdisjoint(place.schema):
        return False
    return set(place.schema.get("required", ())) <= set(properties)
