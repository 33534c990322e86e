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
from guided_sidecar.grammar.compile.alternatives import (
    LISTS,
    OF_NUMBERS,
    Leaves,
    Met,
    Schema,
    UndecidedError,
    alternatives,
    types,
)

_WORDS: Final = frozenset(["boolean", "null"])
# What bounds the values of a type, or lists them.
_OF: Final = {
    "array": ("maxItems", "prefixItems", *LISTS),
    "integer": (*OF_NUMBERS, *LISTS),
    "number": (*OF_NUMBERS, *LISTS),
    "object": ("maxProperties", *LISTS),
    "string": ("format", "maxLength", "pattern", *LISTS),
}
# A regex without what stands for itself; what bounds a match; and what repeats without end.
_LITERAL: Final = re.compile(r"\\[^bB]|\[(?:[^\]\\]|\\.)*\]")
_AT_END: Final = re.compile(r"\$|\\[bB]|\(\?[^:]")
_REPEATS: Final = re.compile(r"[*+]|\{\d+,\}")


class Mark(NamedTuple):
    """What a rank has to know of values at one place; see Position."""

    last: frozenset[str]
    is_whole: bool


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
        self._entered: set[frozenset[frozenset[tuple[int, ...]]]] = set()
        self.marks: dict[tuple[str, ...], Mark] = {}

    def read(self, items: Sequence[Any]) -> None:
        """Read the items of all arrays that may stand at one place: one of these schemas holds, or all do.

        Raises
        ------
        UndecidedError
            An item may come to an end before something else can follow.
        """
        ways = [alternatives(self._root, [one]) for one in items]
        both = alternatives(self._root, items) if len(items) > 1 else []
        self._read((), [*ways, both] if any(map(types, both)) else ways)

    def _read(self, way: tuple[str, ...], ways: list[list[Leaves]]) -> None:
        """Read a value of one of these ways to write it, as what stands before it tells: each must go on."""
        key = frozenset(frozenset(tuple(map(id, leaves)) for leaves in found) for found in ways)
        if key in self._entered:  # such an object within itself has values without end
            return
        self._entered.add(key)
        for found in ways:
            self._check(found)
        found = [leaves for found in ways for leaves in found]
        objects = [self._object(leaves) for leaves in found if "object" in types(leaves)]
        last = frozenset(one.names[-1] for one in objects if not one.is_open)
        if any(_goes_on(one, name) for one in objects for name in last):
            raise UndecidedError
        mark = Mark(last, all("number" not in types(leaves) for leaves in found))
        if self.marks.setdefault(way, mark) != mark:
            raise UndecidedError
        for name in sorted(last):
            ending = [one.leaves for one in objects if not one.is_open and one.names[-1] == name]
            parts = [keywords.of_name([*leaves], name) for leaves in ending]
            self._read((*way, name), [alternatives(self._root, part) for part in parts])

    def _check(self, found: list[Leaves]) -> None:
        """Check that there are strings, numbers and arrays without end, where there are some at all."""
        kinds = frozenset().union(*map(types, found))
        if kinds <= _WORDS:
            raise UndecidedError
        for kind in kinds - _WORDS - {"object"}:
            some = [leaves for leaves in found if kind in types(leaves)]
            has_all = any(_has_none(leaves, _OF[kind]) for leaves in some)
            if kind == "array":
                is_endless = all(_has_none(leaves, _OF[kind]) and self._has_items(leaves) for leaves in some)
            elif kind == "string" and len(some) == 1:
                is_endless = has_all or _may_go_on(some[0])
            else:
                is_endless = has_all
            if not is_endless:
                raise UndecidedError

    def _has_items(self, leaves: Leaves) -> bool:
        """Return whether an array may always get another item."""
        return Met(self._root).by_one([leaf.get("items", True) for leaf in leaves])

    def _object(self, leaves: Leaves) -> _Object:
        properties = [leaf.get("properties", {}) for leaf in leaves]
        dead = frozenset(name for own in properties for name, part in own.items() if part is False)
        lists = {tuple(name for name in own if name not in dead) for own in properties} - {()}
        closed = [leaf for leaf in leaves if leaf.get("additionalProperties", True) is not True]
        is_open = not closed or (len(closed) == 1 and any(self._more_names(closed[0])))
        if not _has_none(leaves, _OF["object"]) or (not is_open and len(lists) != 1):
            raise UndecidedError
        if not is_open and any("patternProperties" in leaf for leaf in closed):
            raise UndecidedError
        return _Object(leaves, () if is_open else lists.pop(), dead, is_open)

    def _more_names(self, leaf: Schema) -> Iterator[bool]:
        """Yield whether an object may get ever more names."""
        met = Met(self._root)
        yield met.by_one([leaf["additionalProperties"]])
        for pattern, part in leaf.get("patternProperties", {}).items():
            has_ends = _can_end(pattern) and not _REPEATS.search(_bare(pattern))
            yield not has_ends and met.by_one([part])


def _has_none(leaves: Leaves, names: Collection[str]) -> bool:
    return all(leaf.keys().isdisjoint(names) for leaf in leaves)


def _may_go_on(leaves: Leaves) -> bool:
    """Return whether all that may follow a string is a longer one."""
    patterns = [leaf["pattern"] for leaf in leaves if "pattern" in leaf]
    is_plain = _has_none(leaves, [keyword for keyword in _OF["string"] if keyword != "pattern"])
    return is_plain and len(patterns) == 1 and not _can_end(patterns[0])


def _goes_on(one: _Object, name: str) -> bool:
    """Return whether another property may follow one of this name."""
    return name not in one.dead and (one.is_open or name in one.names[:-1])


def _can_end(pattern: str) -> bool:
    """Return whether a text may match a pattern where one that goes on does not."""
    return _AT_END.search(_bare(pattern)) is not None


def _bare(pattern: str) -> str:
    return _LITERAL.sub("x", pattern)
