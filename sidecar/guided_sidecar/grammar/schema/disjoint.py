"""Whether no value meets two schemas, as far as that is plain to see."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from guided_grammar.json_schema import keywords
from guided_grammar.json_schema.subschemas import ROOT
from guided_sidecar.grammar.schema.listed import meeting, values
from guided_sidecar.grammar.schema.origins import Said

Schema = dict[str, Any]

TYPES: Final = frozenset(["array", "boolean", "null", "number", "object", "string"])
_DEEPEST: Final = 12
_MOST_LOOKS: Final = 20_000
_NAMED: Final = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def types(said: Schema) -> frozenset[str]:
    """Return the types that a schema's own keywords let through, an integer as a number."""
    named, found = said.get("type"), TYPES
    if named is not None:
        names = [named] if isinstance(named, str) else named
        found = frozenset("number" if name == "integer" else name for name in names)
    listed = values(said)
    return found if listed is None else found & {_NAMED.get(type(value), "null") for value in listed}


def either(found: list[Any]) -> Any:
    """Return alternatives as one schema; False: there are none."""
    if not found:
        return False
    return found[0] if len(found) == 1 else {"anyOf": found}


def other_types(said: Schema, kind: str) -> list[Any]:
    """Return the values of a schema's types but one, as an alternative to what is asked of that one."""
    others = sorted(types(said) - {kind})
    return [{"type": others}] if others else []


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

    def __init__(self, reader: Any) -> None:
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
        shared = set.intersection(*(set(one.get("required", ())) for one in said))
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

    def required(self, part: Any, among: frozenset[str]) -> set[str]:
        """Return the names that all values of some types have that meet a schema: of objects alone."""
        if not isinstance(part, dict):
            return set()
        whole = self._whole(self._reader.said(part, ROOT))
        return set(whole["required"]) if whole["type"] & among == {"object"} else set()

    def _parts_apart(self, said: Schema, other: Any, depth: int, among: frozenset[str]) -> bool:
        """Return whether what a schema refers to or is made of is apart from another."""
        together = [*said.get("allOf", ()), *([self._reader.follow(said, ROOT)[0]] if "$ref" in said else ())]
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
        if shared == {"object"} and self._objects_apart(one, other, depth):
            return True
        return self._meeting(listed, other) == [] or self._meeting(others, one) == []

    def _meeting(self, listed: list[Any] | None, said: Said) -> list[Any] | None:
        if listed is None or said.narrowed:  # what is written for a format takes less than the format
            return None
        return meeting(listed, said, self._reader.draft)

    def _objects_apart(self, one: Schema, other: Schema, depth: int) -> bool:
        if any(
            _lacks(here, name)
            for here, there in ((one, other), (other, one))
            for name in self._whole(there)["required"]
        ):
            return True  # a name that one requires and the other, closed, has not
        one, other = self._whole(one), self._whole(other)
        return any(
            self.are_apart(one["properties"][name], other["properties"][name], depth)
            for name in one["required"] & other["required"] & one["properties"].keys()
            if name in other["properties"]
        )

    def _whole(self, said: Schema, depth: int = 0) -> Schema:
        """Return what a schema says of types and names together with its parts and its reference."""
        if id(said) not in self._wholes:
            found: Schema = {"type": types(said), "required": set(said.get("required", ()))}
            found["properties"] = dict(said.get("properties", {}))
            reference = [self._reader.follow(said, ROOT)[0]] if "$ref" in said else []
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


def _lacks(said: Schema, name: str) -> bool:
    """Return whether an object can have no property of a name."""
    properties = said.get("properties", {})
    if name in properties:
        return properties[name] is False
    begun = tuple(keywords.beginning(pattern) or "" for pattern in said.get("patternProperties", ()))
    return said.get("additionalProperties") is False and not name.startswith(begun)
