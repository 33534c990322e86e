"""What a schema leaves unsaid about further properties, said the same for both libraries.

xgrammar, as vLLM runs it, generates no property that a schema does not name; llguidance generates any. Which
library `Auto` takes must not show in what is generated, so a schema is closed before either compiles it,
where closing cannot contradict what it does say. All that is then generated is valid under the schema as it
was written.
"""

from typing import Any, Final

from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, Place

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
# These compose where something beside them judges the same object.
_CHOOSING: Final = frozenset(["$ref", "anyOf"])
_JUDGING: Final = frozenset(
    [
        "additionalProperties",
        "maxProperties",
        "minProperties",
        "patternProperties",
        "properties",
        "propertyNames",
        "required",
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
    closed = _copied(schema)
    parts = subschemas.within(closed)
    if any(map(_composes, parts)):
        return schema
    for part in parts:
        if _is_silent(part):
            part["additionalProperties"] = False
    return closed


def _composes(schema: dict[str, Any]) -> bool:
    choosing = len(_CHOOSING & schema.keys())
    judged = choosing > 1 or (choosing and not _JUDGING.isdisjoint(schema))
    return bool(judged) or not _COMPOSING.isdisjoint(schema)


def _is_silent(schema: dict[str, Any]) -> bool:
    properties = schema.get("properties")
    if properties is None or not _OPENING.isdisjoint(schema) or not Place(ROOT, schema).allows("object"):
        return False
    return set(schema.get("required", ())) <= set(properties)


def _copied(value: Any) -> Any:
    """Return a deep copy of what was read from JSON, in a tenth of copy.deepcopy's time."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value
