"""Whether no value meets two schemas, as far as that is plain to see."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import jsonschema

from guided_grammar.json_schema import keywords
from guided_grammar.json_schema.subschemas import ROOT
from guided_sidecar.grammar.schema.origins import Said

Schema = dict[str, Any]

TYPES: Final = frozenset(["array", "boolean", "null", "number", "object", "string"])
_DEEPEST: Final = 12
_MOST_LOOKS: Final = 10_000
_NAMED: Final = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
# What jsonschema tells of a value alike in any draft; patterns of plain texts, without escapes of Python's.
_JUDGED: Final = [*keywords.BOUNDS, *keywords.LENGTHS, "multipleOf", "pattern"]
_PLAIN: Final = re.compile("[A-Za-z0-9_ .:/-]*")
_PYTHONS: Final = re.compile(r"\\[AZabz]")


def types(said: Schema) -> frozenset[str]:
    """Return the types that a schema's own keywords let through, an integer as a number."""
    named, found = said.get("type"), TYPES
    if named is not None:
        names = [named] if isinstance(named, str) else named
        found = frozenset("number" if name == "integer" else name for name in names)
    return found & {_NAMED.get(type(value), "null") for value in said["enum"]} if "enum" in said else found


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


class Disjointness:
    """Compares the parts of one schema as written."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._looks = 0

    def are_told_apart(self, branches: Sequence[Any]) -> bool:
        """Return whether all list values, or values of one required property, and share none; quick."""
        said = [self._joined([branch]) for branch in branches]
        if _share_none(map(_listed, said)):
            return True
        if any(_types(one) != {"object"} for one in said):
            return False
        shared = set.intersection(*map(_required, said))
        return any(
            _share_none(_listed(self._joined(_of_name(one, name))) for one in said) for name in sorted(shared)
        )

    def required(self, part: Any, among: frozenset[str]) -> set[str]:
        """Return the names that all values of some types have that meet a schema: of objects alone."""
        said = self._joined([part])
        return _required(said) if _types(said) & among == {"object"} else set()

    def are_apart(
        self,
        one: Sequence[Any],
        other: Sequence[Any],
        depth: int = 0,
        among: frozenset[str] = TYPES,
        tried: frozenset[int] = frozenset(),
    ) -> bool:
        """Return whether no value of some types meets all of both; False also where that is not plain.

        `tried` are the lists of branches, by their id, of which one is among the schemas.
        """
        self._looks += 1
        if False in one or False in other:
            return True
        if depth > _DEEPEST or self._looks > _MOST_LOOKS:
            return False
        both = self._joined(one), self._joined(other)
        shared = among & _types(both[0]) & _types(both[1])
        if not shared or _share_none(map(_listed, both)) or _rules_out(*both) or _rules_out(*both[::-1]):
            return True
        if shared == {"object"} and self._objects_apart(*both, depth + 1):
            return True
        return any(
            all(
                self.are_apart([*mine, branch], there, depth + 1, among, tried | {id(said[keyword])})
                for branch in said[keyword]
            )
            for mine, there, found in ((one, other, both[0]), (other, one, both[1]))
            for said in found
            for keyword in ("anyOf", "oneOf")
            if keyword in said and id(said[keyword]) not in tried
        )

    def _objects_apart(self, one: list[Said], other: list[Said], depth: int) -> bool:
        for here, there in ((one, other), (other, one)):
            if any(_lacks(said, name) for said in here for name in _required(there)):
                return True  # a name that one requires and the other, closed, has not
        return any(
            self.are_apart(_of_name(one, name), _of_name(other, name), depth)
            for name in sorted(_required(one) & _required(other))
        )

    def _joined(self, parts: Sequence[Any]) -> list[Said]:
        """Return what schemas say together with their parts and references."""
        found: dict[int, Said] = {}
        stack = [part for part in parts if isinstance(part, dict)]
        while stack:
            said = self._reader.said(stack.pop(), ROOT)
            if id(said) not in found:
                found[id(said)] = said
                below = [*said.get("allOf", ())]
                below += [self._reader.follow(said, ROOT)[0]] if "$ref" in said else []
                stack += [part for part in below if isinstance(part, dict)]
        return list(found.values())


def _types(found: list[Said]) -> frozenset[str]:
    return TYPES.intersection(*map(types, found))


def _required(found: list[Said]) -> set[str]:
    return {name for said in found for name in said.get("required", ())}


def _listed(found: list[Said]) -> set[str] | None:
    """Return the values that one of some schemas lists, as texts; None: none does."""
    lists = [set(map(text, said["enum"])) for said in found if "enum" in said]
    return set.intersection(*lists) if lists else None


def _rules_out(one: list[Said], other: list[Said]) -> bool:
    """Return whether the values that the first lists plainly break what the other asks."""
    listed = _listed(one)
    if listed is None:
        return False
    return all(any(_is_broken(said, json.loads(value)) for said in other) for value in listed)


def _is_broken(said: Said, value: Any) -> bool:
    asked = {keyword: said[keyword] for keyword in _JUDGED if keyword in said}
    if type(value) is not int or type(asked.get("multipleOf")) is not int:
        asked.pop("multipleOf", None)
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value) and not said.narrowed
    if not is_plain or _PYTHONS.search(asked.get("pattern", "")):
        asked.pop("pattern", None)
    try:
        return not jsonschema.Draft202012Validator(asked).is_valid(value)
    except re.error:  # what Python has not
        return False


def _of_name(found: list[Said], name: str) -> list[Any]:
    return [said["properties"][name] for said in found if name in said.get("properties", ())]


def _share_none(lists: Iterable[set[str] | None]) -> bool:
    known: set[str] = set()
    for listed in lists:
        if listed is None or not known.isdisjoint(listed):
            return False
        known |= listed
    return True


def _lacks(said: Schema, name: str) -> bool:
    """Return whether an object can have no property of a name."""
    properties = said.get("properties", {})
    if name in properties:
        return properties[name] is False
    begun = tuple(keywords.beginning(pattern) or "" for pattern in said.get("patternProperties", ()))
    return said.get("additionalProperties") is False and not name.startswith(begun)
