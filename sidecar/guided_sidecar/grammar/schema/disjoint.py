"""Whether no value meets two schemas, as far as that is plain to see."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from guided_grammar.json_schema import keywords
from guided_grammar.json_schema.subschemas import ROOT
from guided_sidecar.grammar.schema.listed import meeting, values
from guided_sidecar.grammar.schema.origins import Said
from guided_sidecar.grammar.schema.writing import TYPES, Schema, Writer

_DEEPEST: Final = 12
_MOST_LOOKS: Final = 20_000
_LENGTHS: Final = {"array": ("minItems", "maxItems"), "string": ("minLength", "maxLength")}


def types(said: Schema) -> frozenset[str]:
    """Return the types that a schema's own keywords let through, an integer as a number."""
    named = said.get("type")
    found = TYPES
    if named is not None:
        found = frozenset("number" if name == "integer" else name for name in _listed(named))
    listed = values(said)
    return found if listed is None else found & {_type(value) for value in listed}


def text(value: Any) -> str:
    """Return a value as text in which 1 and 1.0 are one."""
    if isinstance(value, list):
        return f"[{','.join(map(text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(name)}:{text(value[name])}' for name in sorted(value))}}}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


class Judge:
    """Compares the parts of one schema as written."""

    def __init__(self, reader: Writer) -> None:
        self._reader = reader
        self._looks = 0
        self._wholes: dict[int, Schema] = {}

    def are_told_apart(self, branches: Sequence[Any]) -> bool:
        """Return whether all list values, or values of one required property, and share none; quick."""
        read = [self._reader.resolved(branch, ROOT) for branch in branches]
        said = [self._reader.said(one, ROOT) if isinstance(one, dict) else {} for one in read]
        if _share_none(map(values, said)):
            return True
        if any(types(one) != {"object"} for one in said):
            return False
        shared = set.intersection(*map(_required, said))
        return any(_share_none(self._values_of(one, name) for one in said) for name in sorted(shared))

    def _values_of(self, said: Schema, name: str) -> list[Any] | None:
        part = self._reader.resolved(said.get("properties", {}).get(name, True), ROOT)
        return values(self._reader.said(part, ROOT)) if isinstance(part, dict) else None

    def are_apart(self, one: Any, other: Any, depth: int = 0, among: frozenset[str] = TYPES) -> bool:
        """Return whether no value of some types meets both; False also where that is not plain to see."""
        self._looks += 1
        if one is False or other is False:
            return True
        if depth > _DEEPEST or self._looks > _MOST_LOOKS or one is True or other is True:
            return False
        first, second = self._reader.said(one, ROOT), self._reader.said(other, ROOT)
        among = among & self._whole(first)["type"] & self._whole(second)["type"]
        if self._own_apart(first, second, depth + 1, among):
            return True
        return any(
            self._parts_apart(said, there, depth + 1, among)
            for said, there in ((first, other), (second, one))
        )

    def types(self, part: Schema) -> frozenset[str]:
        """Return the types that a schema lets through, as far as that is plain to see."""
        found: frozenset[str] = self._whole(self._reader.said(part, ROOT))["type"]
        return found

    def required(self, part: Schema) -> set[str]:
        """Return the names that each object must have that meets a schema, as far as that is plain to see."""
        names: set[str] = self._whole(self._reader.said(part, ROOT))["required"]
        return names

    def _parts_apart(self, said: Schema, other: Any, depth: int, among: frozenset[str]) -> bool:
        """Return whether what a schema refers to or is made of is apart from another."""
        together = [*said.get("allOf", ())]
        if "$ref" in said:
            together.append(self._reader.follow(said, "$ref", ROOT))
        if any(self.are_apart(part, other, depth, among) for part in together):
            return True
        return any(
            all(self.are_apart(part, other, depth, among) for part in said[keyword])
            for keyword in ("anyOf", "oneOf")
            if keyword in said
        )

    def _own_apart(self, one: Said, other: Said, depth: int, shared: frozenset[str]) -> bool:
        if not shared:
            return True
        listed, others = values(one), values(other)
        if listed is not None and others is not None:
            return {text(value) for value in listed}.isdisjoint(map(text, others))
        if all(
            self._objects_apart(one, other, depth) if kind == "object" else _lengths_apart(kind, one, other)
            for kind in shared
        ):
            return True
        return self._meeting(listed, other) == [] or self._meeting(others, one) == []

    def _meeting(self, listed: list[Any] | None, said: Said) -> list[Any] | None:
        if listed is None or said.narrowed:  # what is written for a format takes less than the format
            return None
        return meeting(listed, said, self._reader.draft)

    def _objects_apart(self, one: Schema, other: Schema, depth: int) -> bool:
        if any(
            _lacks(there, name) for here, there in ((one, other), (other, one)) for name in _required(here)
        ):
            return True
        # As with a discriminator: a property that both require, and that differs.
        one, other = self._whole(one), self._whole(other)
        return any(
            self.are_apart(one["properties"][name], other["properties"][name], depth)
            for name in _required(one) & _required(other)
            if name in one.get("properties", {}) and name in other.get("properties", {})
        )

    def _whole(self, said: Schema, depth: int = 0) -> Schema:
        """Return what a schema says of types and names together with its parts and its reference."""
        if id(said) not in self._wholes:
            found: Schema = {"type": types(said), "required": _required(said)}
            found["properties"] = dict(said.get("properties", {}))
            reference = [self._reader.follow(said, "$ref", ROOT)] if "$ref" in said else []
            for part in [*said.get("allOf", ()), *reference] if depth < _DEEPEST else ():
                if isinstance(part, dict):
                    inner = self._whole(self._reader.said(part, ROOT), depth + 1)
                    found["type"] &= inner["type"]
                    found["required"] |= inner["required"]
                    for name, one in inner["properties"].items():
                        known = found["properties"].get(name, True)
                        found["properties"][name] = one if known is True else {"allOf": [known, one]}
            self._wholes[id(said)] = found
        return self._wholes[id(said)]


def _share_none(lists: Iterable[list[Any] | None]) -> bool:
    known: set[str] = set()
    for listed in lists:
        own = None if listed is None else set(map(text, listed))
        if own is None or not known.isdisjoint(own):
            return False
        known |= own
    return True


def _required(said: Schema) -> set[str]:
    return set(said.get("required", ()))


def _lacks(said: Schema, name: str) -> bool:
    """Return whether an object can have no property of a name."""
    properties = said.get("properties", {})
    if name in properties:
        return properties[name] is False
    begun = tuple(keywords.beginning(pattern) or "" for pattern in said.get("patternProperties", ()))
    return said.get("additionalProperties") is False and not name.startswith(begun)


def _lengths_apart(kind: str, one: Schema, other: Schema) -> bool:
    """Return whether all values of a type are longer by one schema than by the other."""
    if kind not in _LENGTHS:
        return False
    least, most = _LENGTHS[kind]
    return any(
        here.get(least, 0) > there.get(most, float("inf")) for here, there in ((one, other), (other, one))
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")
