"""What a schema does not take, as alternatives that libraries enforce.

Each keyword that a value can fail gives alternatives; of several types, so each says its own. A keyword whose
failure has no words (a format, most patterns, multipleOf) gives none, nor does a schema within itself: what
is returned is never more than what the schema leaves, and may be less, which `is_exact` tells.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from guided_grammar.json_schema.keywords import OF_TYPE
from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import disjoint, patterns
from guided_sidecar.grammar.schema.writing import PLACES, TYPES, Alternatives, Schema, Writer, either, item_at

_DEEPEST: Final = 60
_LEAST: Final = {  # what fails a bound of a count: the other bound, and how far from it
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
}
_BOUNDS: Final = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}


def plainest(alternatives: Alternatives) -> Alternatives:
    """Return those that ask for a property's absence, if there are some: what people mean by `oneOf`."""
    absent = [one for one in alternatives if isinstance(one, dict) and _is_absence(one)]
    others = [one for one in alternatives if isinstance(one, dict) and one.keys() == {"type"}]
    return [*others, *absent] if absent else alternatives


def of_integers(alternatives: Alternatives) -> Alternatives:
    """Return those that an integer may meet: a library ends at bounds between which there is none."""
    return [one for one in alternatives if not (isinstance(one, dict) and _is_between_integers(one))]


def _is_between_integers(one: Schema) -> bool:
    if "exclusiveMinimum" not in one or "exclusiveMaximum" not in one:
        return False
    return bool(math.floor(one["exclusiveMinimum"]) + 1 >= one["exclusiveMaximum"])


def _is_absence(one: Schema) -> bool:
    return one.keys() == {"type", "properties"} and all(part is False for part in one["properties"].values())


def is_absence_of(one: Any, said: Schema) -> bool:
    """Return whether an alternative asks for a property's absence that a schema requires."""
    if not isinstance(one, dict) or not _is_absence(one):
        return False
    return not one["properties"].keys().isdisjoint(said.get("required", ()))


class Negation:
    """Writes what parts of one schema do not take.

    Parameters
    ----------
    types
        Of the values that are asked about.

    Attributes
    ----------
    is_exact
        Whether all that was returned so far is all that the parts do not take, as far as the normal form
        of what they forbid is: it looks at the first eight items of an array.
    """

    def __init__(self, writer: Writer, types: frozenset[str] = TYPES, depth: int = 0) -> None:
        self._writer = writer
        self._types = types
        self._depth = depth
        self.is_exact = True

    def of(self, part: Any, path: JsonPath) -> Alternatives:
        """Return alternatives, none of which takes a value that `part` takes."""
        if isinstance(part, bool):
            return [] if part else [self._anything()]
        if self._depth > _DEEPEST:
            return self._less()
        self._depth += 1
        try:
            said = self._writer.said(part, path)
            if any(OF_TYPE.get(one) in {None, *self._types} for one in said.keys() - self._TOLD):
                self._less()
            return [
                one
                for keyword in said
                if keyword in self._WAYS
                for one in self._WAYS[keyword](self, said, said.at(path, keyword))
                if self._is_about(one)
            ]
        finally:
            self._depth -= 1

    def _less(self) -> Alternatives:
        """Return nothing, where something may be left."""
        self.is_exact = False
        return []

    def _inside(self, part: Any, path: JsonPath, types: frozenset[str] = TYPES) -> Any:
        """Return what a part does not take, of some types, as one schema; False: nothing that is known."""
        inside = Negation(self._writer, types, self._depth)
        found = inside.of(part, path)
        self.is_exact &= inside.is_exact
        return either(found)

    def _anything(self) -> Any:
        return {} if self._types == TYPES else {"type": sorted(self._types)}

    def _is_about(self, one: Any) -> bool:
        if not isinstance(one, dict):
            return one is not False
        return bool(disjoint.types(one) & self._types)

    def _type(self, said: Schema, _path: JsonPath) -> Alternatives:
        others = self._types - disjoint.types({"type": said["type"]})
        named = said["type"] if isinstance(said["type"], list) else [said["type"]]
        if "integer" in named and "number" not in named and "number" in self._types:
            self._less()
        return [{"type": sorted(others)}] if others else []

    def _values(self, said: Schema, path: JsonPath) -> Alternatives:
        values = [said["const"]] if path.last == "const" else said["enum"]
        by_type: dict[str, list[Any]] = {}
        for value in values:
            by_type.setdefault(next(iter(disjoint.types({"const": value}))), []).append(value)
        found: Alternatives = []
        if free := sorted(self._types - by_type.keys()):
            found.append({"type": free})
        if "boolean" in by_type and len(set(by_type["boolean"])) == 1:
            found.append({"const": not by_type["boolean"][0]})
        found += _between(sorted(set(by_type.get("number", ()))))
        if "string" in by_type and (pattern := patterns.other_than(by_type["string"])):
            found.append({"type": "string", "pattern": pattern})
        elif "string" in by_type:
            self._less()
        if not self._types.isdisjoint(by_type.keys() & {"array", "object"}):
            self._less()
        return found

    def _pattern(self, said: Schema, _path: JsonPath) -> Alternatives:
        pattern = patterns.without(said["pattern"])
        return [{"type": "string", "pattern": pattern}] if pattern else self._less()

    def _all(self, said: Schema, path: JsonPath) -> Alternatives:
        return [one for i, part in enumerate(said["allOf"]) for one in self.of(part, JsonPath(path, i))]

    def _some(self, said: Schema, path: JsonPath) -> Alternatives:
        """Return what no branch of anyOf takes; no branch of oneOf, which is less than oneOf leaves."""
        parts = said[str(path.last)]
        if path.last == "oneOf":
            self._less()
        found = [either(self.of(part, JsonPath(path, i))) for i, part in enumerate(parts)]
        if any(one is False for one in found):
            return []
        return [{"allOf": found} if len(found) > 1 else found[0]]

    def _not(self, said: Schema, path: JsonPath) -> Alternatives:
        return [self._writer.write(said["not"], path)]

    def _if(self, said: Schema, path: JsonPath) -> Alternatives:
        before = path.before or ROOT
        met = self._writer.write(said["if"], path)
        unmet = either(self.of(said["if"], path))
        found = []
        for condition, keyword in ((met, "then"), (unmet, "else")):
            failed = either(self.of(said.get(keyword, True), JsonPath(before, keyword)))
            if condition is not False and failed is not False:
                found.append({"allOf": [condition, failed]})
        return found

    def _required(self, said: Schema, _path: JsonPath) -> Alternatives:
        return [{"type": "object", "properties": {name: False}} for name in said["required"]]

    def _properties(self, said: Schema, path: JsonPath) -> Alternatives:
        found = [
            (name, self._inside(part, JsonPath(path, name))) for name, part in said["properties"].items()
        ]
        return [
            {"type": "object", "required": [name], "properties": {name: failed}}
            for name, failed in found
            if failed is not False
        ]

    def _dependent_required(self, said: Schema, _path: JsonPath) -> Alternatives:
        return [
            {"type": "object", "required": [name], "properties": {wanted: False}}
            for name, names in said["dependentRequired"].items()
            for wanted in names
            if wanted != name
        ]

    def _dependent_schemas(self, said: Schema, path: JsonPath) -> Alternatives:
        found = [
            (name, self._inside(part, path, frozenset(["object"])))
            for name, part in said["dependentSchemas"].items()
        ]
        return [
            {"type": "object", "required": [name], "allOf": [failed]}
            for name, failed in found
            if failed is not False
        ]

    def _count(self, said: Schema, path: JsonPath) -> Alternatives:
        keyword = str(path.last)
        kind, other, step = _LEAST[keyword]
        bound = said[keyword] + step
        return [{"type": kind, other: bound}] if bound >= 0 else []

    def _bound(self, said: Schema, path: JsonPath) -> Alternatives:
        keyword = str(path.last)
        return [{"type": "number", _BOUNDS[keyword]: said[keyword]}]

    def _items(self, said: Schema, path: JsonPath) -> Alternatives:
        failed, before = self._inside(said["items"], path), len(said.get("prefixItems", ()))
        if failed is False:
            return []
        self._writer.narrow(path)
        return [item_at([before + place], failed) for place in range(PLACES)]

    def _prefix(self, said: Schema, path: JsonPath) -> Alternatives:
        parts = [self._inside(part, JsonPath(path, i)) for i, part in enumerate(said["prefixItems"])]
        return [item_at([place], failed) for place, failed in enumerate(parts) if failed is not False]

    def _contains(self, said: Schema, path: JsonPath) -> Alternatives:
        if said.get("minContains", 1) != 1 or "maxContains" in said:
            return self._less()
        failed = self._inside(said["contains"], path)
        return [{"type": "array", "maxItems": 0} if failed is False else {"type": "array", "items": failed}]

    def _reference(self, said: Schema, path: JsonPath) -> Alternatives:
        """Return what a reference's target does not take, read once; nothing within that target itself."""
        target, negated = self._writer.follow(said, str(path.last), path), self._writer.negated
        key = id(target), self._types
        if key not in negated:
            negated[key] = [], False
            inside = Negation(self._writer, self._types, self._depth)
            negated[key] = inside.of(target, path), inside.is_exact
        found, is_exact = negated[key]
        self.is_exact &= is_exact
        return found

    _WAYS: Final[dict[str, Any]] = {
        "type": _type,
        "const": _values,
        "enum": _values,
        "pattern": _pattern,
        "allOf": _all,
        "anyOf": _some,
        "oneOf": _some,
        "not": _not,
        "if": _if,
        "required": _required,
        "properties": _properties,
        "dependentRequired": _dependent_required,
        "dependentSchemas": _dependent_schemas,
        "items": _items,
        "prefixItems": _prefix,
        "contains": _contains,
        "$ref": _reference,
        **dict.fromkeys(_LEAST, _count),
        **dict.fromkeys(_BOUNDS, _bound),
    }
    _TOLD: Final = _WAYS.keys() | {"else", "maxContains", "minContains", "then"}


def _between(values: Sequence[float]) -> Alternatives:
    """Return the numbers that are none of some."""
    if not values:
        return []
    found: Alternatives = [{"type": "number", "exclusiveMaximum": values[0]}]
    found += [
        {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high}
        for low, high in itertools.pairwise(values)
    ]
    return [*found, {"type": "number", "exclusiveMinimum": values[-1]}]
