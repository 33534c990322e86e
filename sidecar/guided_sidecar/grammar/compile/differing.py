"""Whether ranks can see to it that an array's items differ: guided_grammar.unique_items says when they can.

At any point of an item there must be values without end, or one alone. So it is for strings without a bound,
numbers and integers without one, arrays that may always get another item, objects that may always get another
name; and for other objects if it is so for what their last property may be: libraries write properties in the
schema's order. Words (`null`, `true`) may stand beside these.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from guided_grammar.json_schema import keywords
from guided_grammar.json_schema.subschemas import referred

Schema = dict[str, Any]
Leaves = tuple[Schema, ...]  # all of which hold of a value

_MOST: Final = 64  # alternatives
_TYPES: Final = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])
_WORDS: Final = frozenset(["boolean", "null"])
# What bounds the values of a type, or lists them.
_LISTS: Final = ("const", "enum")
_OF_NUMBERS: Final = (*keywords.BOUNDS, "multipleOf", *_LISTS)
_OF: Final = {
    "array": ("maxItems", "prefixItems", *_LISTS),
    "integer": _OF_NUMBERS,
    "number": _OF_NUMBERS,
    "object": ("maxProperties", *_LISTS),
    "string": ("format", "maxLength", "pattern", *_LISTS),
}
_NUMBERS: Final = frozenset(["integer", "number"])
_OF_VALUES: Final[dict[type, frozenset[str]]] = {
    bool: frozenset(["boolean"]),
    dict: frozenset(["object"]),
    float: _NUMBERS,
    int: _NUMBERS,
    list: frozenset(["array"]),
    str: frozenset(["string"]),
    type(None): frozenset(["null"]),
}
# A regex without what stands for itself; what bounds a match; and what repeats without end.
_LITERAL: Final = re.compile(r"\\[^bB]|\[(?:[^\]\\]|\\.)*\]")
_AT_END: Final = re.compile(r"\$|\\[bB]|\(\?[^:]")
_REPEATS: Final = re.compile(r"[*+]|\{\d+,\}")


class Mark(NamedTuple):
    """What a rank has to know of values at one place; see Position."""

    last: frozenset[str]
    is_whole: bool


class UndecidedError(Exception):
    """Ranks cannot see to it."""


class _Object(NamedTuple):
    leaves: Leaves
    names: tuple[str, ...]  # in the order in which they are written
    dead: frozenset[str]
    is_open: bool


class Differing:
    """What marks an item's places, from the item's own on.

    Attributes
    ----------
    marks
        Of the values on the way of last properties, by the names of these.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._entered: set[frozenset[tuple[int, ...]]] = set()
        self.marks: dict[tuple[str, ...], Mark] = {}

    def read(self, items: Sequence[Any]) -> None:
        """Read the items of all arrays that may stand at one place: one of these schemas holds, or all do.

        Raises
        ------
        UndecidedError
            An item may come to an end before something else can follow.
        """
        found = [leaves for one in items for leaves in self._alternatives([one])]
        self._read((), [*found, *(self._alternatives(items) if len(items) > 1 else ())])

    def _read(self, way: tuple[str, ...], found: list[Leaves]) -> None:
        key = frozenset(tuple(map(id, leaves)) for leaves in found)
        if key in self._entered:  # such an object within itself has values without end
            return
        self._entered.add(key)
        types = [_types(leaves) for leaves in found]
        kinds = frozenset().union(*types)
        if kinds <= _WORDS:
            raise UndecidedError
        _check(found, types)
        objects = [_object(leaves) for leaves, some in zip(found, types, strict=True) if "object" in some]
        last = frozenset(one.names[-1] for one in objects if not one.is_open)
        if any(_goes_on(one, name) for one in objects for name in last):
            raise UndecidedError
        mark = Mark(last, "number" not in kinds)
        if self.marks.setdefault(way, mark) != mark:
            raise UndecidedError
        for name in sorted(last):
            self._read(
                (*way, name),
                [
                    below
                    for one in objects
                    if not one.is_open and one.names[-1] == name
                    for below in self._alternatives(keywords.of_name([*one.leaves], name))
                ],
            )

    def _alternatives(self, schemas: Any) -> list[Leaves]:
        """Return what may hold of a value that meets all of some schemas."""
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
                rest += (referred(self._root, reference),)
            own = (*leaves, schema) if keywords.asserts(schema) else leaves
            stack += [((*rest, branch), own, referred_to) for branch in schema.get("anyOf", (True,))]
        return found


def _types(leaves: Leaves) -> frozenset[str]:
    types = _TYPES
    for leaf in leaves:
        named = leaf.get("type", types)
        own = {named} if isinstance(named, str) else {*named}
        types &= own | ({"integer"} if "number" in own else set())
        values = [leaf["const"]] if "const" in leaf else leaf.get("enum")
        if values is not None:
            types &= frozenset().union(*(_OF_VALUES[type(value)] for value in values))
    return types


def _check(found: list[Leaves], types: Sequence[frozenset[str]]) -> None:
    """Check that there are strings, numbers and arrays without end, where there are some at all."""
    for kind in sorted(frozenset().union(*types) - _WORDS - {"object"}):
        some = [leaves for leaves, own in zip(found, types, strict=True) if kind in own]
        has_all = any(_has_none(leaves, _OF[kind]) for leaves in some)
        if kind == "array":
            is_endless = all(_has_none(leaves, _OF[kind]) and _has_items(leaves) for leaves in some)
        elif kind == "string" and len(some) == 1:
            is_endless = has_all or _may_go_on(some[0])
        else:
            is_endless = has_all
        if not is_endless:
            raise UndecidedError


def _has_none(leaves: Leaves, names: Collection[str]) -> bool:
    return all(leaf.keys().isdisjoint(names) for leaf in leaves)


def _may_go_on(leaves: Leaves) -> bool:
    """Return whether all that may follow a string is a longer one."""
    patterns = [leaf["pattern"] for leaf in leaves if "pattern" in leaf]
    is_plain = _has_none(leaves, [keyword for keyword in _OF["string"] if keyword != "pattern"])
    return is_plain and len(patterns) == 1 and not _can_end(patterns[0])


def _has_items(leaves: Leaves) -> bool:
    """Return whether an array may always get another item."""
    items = [leaf["items"] for leaf in leaves if leaf.get("items", True) is not True]
    return not items or (len(items) == 1 and items[0] is not False)


def _object(leaves: Leaves) -> _Object:
    properties = [leaf.get("properties", {}) for leaf in leaves]
    dead = frozenset(name for own in properties for name, part in own.items() if part is False)
    lists = {tuple(name for name in own if name not in dead) for own in properties} - {()}
    closed = [leaf for leaf in leaves if leaf.get("additionalProperties", True) is not True]
    is_open = not closed or (len(closed) == 1 and any(_more_names(closed[0])))
    if not _has_none(leaves, _OF["object"]) or (not is_open and len(lists) != 1):
        raise UndecidedError
    if not is_open and any("patternProperties" in leaf for leaf in closed):
        raise UndecidedError
    return _Object(leaves, () if is_open else lists.pop(), dead, is_open)


def _more_names(leaf: Schema) -> Iterator[bool]:
    """Yield whether an object may get ever more names."""
    yield leaf["additionalProperties"] is not False
    for pattern, part in leaf.get("patternProperties", {}).items():
        yield part is not False and (not _can_end(pattern) or bool(_REPEATS.search(_bare(pattern))))


def _goes_on(one: _Object, name: str) -> bool:
    """Return whether another property may follow one of this name."""
    return name not in one.dead and (one.is_open or name in one.names[:-1])


def _can_end(pattern: str) -> bool:
    """Return whether a text may match a pattern where one that goes on does not."""
    return _AT_END.search(_bare(pattern)) is not None


def _bare(pattern: str) -> str:
    return _LITERAL.sub("x", pattern)
