"""What a schema in normal form may ask of a value, way by way, and whether some value meets it."""

import math
from collections.abc import Iterable
from typing import Any, Final

from guided_grammar.json_schema import keywords
from guided_grammar.json_schema.subschemas import referred

Schema = dict[str, Any]
Leaves = tuple[Schema, ...]  # all of which hold of a value

LISTS: Final = ("const", "enum")
_MOST: Final = 64  # alternatives
_MOST_LOOKS: Final = 256  # for a value
_TYPES: Final = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])
OF_NUMBERS: Final = (*keywords.BOUNDS, "multipleOf")
_NUMBERS: Final = frozenset(["integer", "number"])
_TEXTS: Final = ("format", "maxLength", "minLength", "pattern")
_OF_VALUES: Final[dict[type, frozenset[str]]] = {
    bool: frozenset(["boolean"]),
    dict: frozenset(["object"]),
    float: _NUMBERS,
    int: _NUMBERS,
    list: frozenset(["array"]),
    str: frozenset(["string"]),
    type(None): frozenset(["null"]),
}


class UndecidedError(Exception):
    """Ranks cannot see to it."""


def alternatives(root: Any, schemas: Iterable[Any]) -> list[Leaves]:
    """Return what may hold of a value that meets all of some schemas.

    Raises
    ------
    UndecidedError
        It is too much.
    """
    found: list[Leaves] = []
    stack: list[tuple[tuple[Any, ...], Leaves, frozenset[str]]] = [(tuple(schemas), (), frozenset())]
    while stack:
        (waiting, leaves, referred_to) = stack.pop()
        if not waiting:
            found.append(leaves)
            if len(found) > _MOST:
                raise UndecidedError
            continue
        schema, rest = waiting[0], waiting[1:]
        if schema is False:
            continue
        if not isinstance(schema, dict):
            stack.append((rest, leaves, referred_to))
            continue
        rest += tuple(schema.get("allOf", ()))
        if (reference := schema.get("$ref")) is not None:
            if reference in referred_to:
                raise UndecidedError
            referred_to |= {reference}
            rest += (referred(root, reference),)
        own = (*leaves, schema) if keywords.asserts(schema) else leaves
        stack += [((*rest, branch), own, referred_to) for branch in schema.get("anyOf", (True,))]
    return found


def types(leaves: Leaves) -> frozenset[str]:
    """Return the types that a value can have."""
    found = _TYPES
    for leaf in leaves:
        named = leaf.get("type", found)
        own = {named} if isinstance(named, str) else {*named}
        found &= own | ({"integer"} if "number" in own else set())
        values = [leaf["const"]] if "const" in leaf else leaf.get("enum")
        if values is not None:
            found &= frozenset().union(*(_OF_VALUES[type(value)] for value in values))
    return found


class Met:
    """Whether some value meets schemas, where that is plain to see."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._entered: set[frozenset[int]] = set()  # a value that needs itself within is none
        self._looks = 0

    def by_one(self, schemas: Iterable[Any]) -> bool:
        """Return whether some value meets all of these schemas; False also where it is not plain to see."""
        wanted = [schema for schema in schemas if schema is not True]
        key = frozenset(map(id, wanted))
        self._looks += 1
        if key in self._entered or self._looks > _MOST_LOOKS:
            return False
        self._entered.add(key)
        found = any(map(self._is_met, alternatives(self._root, wanted)))
        self._entered.discard(key)
        return found

    def _is_met(self, leaves: Leaves) -> bool:
        some = types(leaves)
        if any(name in leaf for leaf in leaves for name in LISTS):
            return bool(some) and all(leaf.keys() <= {"type", *LISTS} for leaf in leaves) and len(leaves) == 1
        return (
            not some.isdisjoint({"boolean", "null"})
            or ("string" in some and _ask(leaves, _TEXTS) <= 1)
            or (not some.isdisjoint(_NUMBERS) and _is_number(leaves, is_whole="number" not in some))
            or ("array" in some and self._is_array(leaves))
            or ("object" in some and self._is_object(leaves))
        )

    def _is_array(self, leaves: Leaves) -> bool:
        if not any(leaf.get("minItems") for leaf in leaves):
            return True
        prefixes = [schema for leaf in leaves for schema in leaf.get("prefixItems", ())]
        return (
            _ask(leaves, ("minItems", "maxItems", "prefixItems")) == 1
            and all(self.by_one([schema]) for schema in prefixes)
            and self.by_one([leaf.get("items", True) for leaf in leaves])
        )

    def _is_object(self, leaves: Leaves) -> bool:
        needed = dict.fromkeys(name for leaf in leaves for name in leaf.get("required", ()))
        is_counted = any(leaf.get("minProperties", 0) > len(needed) for leaf in leaves) or any(
            leaf.get("maxProperties", math.inf) < len(needed) for leaf in leaves
        )
        return not is_counted and all(self.by_one(keywords.of_name([*leaves], name)) for name in needed)


def _ask(leaves: Leaves, names: Iterable[str]) -> int:
    """Return how many of these schemas have one of some keywords."""
    return sum(not leaf.keys().isdisjoint(names) for leaf in leaves)


def _is_number(leaves: Leaves, *, is_whole: bool) -> bool:
    asking = [leaf for leaf in leaves if not leaf.keys().isdisjoint(OF_NUMBERS)]
    if len(asking) != 1:
        return not asking
    leaf = asking[0]
    if "multipleOf" in leaf:
        return leaf.keys().isdisjoint(keywords.BOUNDS)
    is_closed = leaf.keys().isdisjoint(["exclusiveMinimum", "exclusiveMaximum"])
    least = max(leaf.get("minimum", -math.inf), leaf.get("exclusiveMinimum", -math.inf))
    most = min(leaf.get("maximum", math.inf), leaf.get("exclusiveMaximum", math.inf))
    between, enough = most - least, 1 if is_whole else 0
    return between > enough or (is_closed and (between == enough or (between == 0 and least % 1 == 0)))
