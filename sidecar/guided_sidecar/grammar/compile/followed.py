"""Which minLength, maxLength and uniqueItems the ranks can follow, so that they need not be compiled.

A bound can be counted where the path to a string alone tells that it applies: wherever the text may stand
when it begins a value, every schema that may then hold must want the same of a string, and take any
characters. So the schema is followed as a finite automaton is made deterministic: a place is the set of all
schemas that may hold there. A schema keeps all that it says in the grammar unless all of its places decide.
A minLength alone some libraries compile to masks that cost less than counting.

So are arrays whose items differ: they do where no other schema may hold of the array, and its items are
strings and numbers that can always be made longer, with `null` and booleans beside them. No library enforces
what is left of uniqueItems.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from guided_contract.counting import NOTHING, Position
from guided_contract.wire import Backend
from guided_grammar.json_schema import keywords
from guided_grammar.json_schema.keywords import ANY, DEFINITIONS, LENGTHS
from guided_grammar.json_schema.subschemas import children, referred, within
from guided_grammar.registry import library
from guided_sidecar.grammar.schema.disjoint import types
from guided_sidecar.grammar.worker_messages import MOST_POSITIONS

_FOLLOWED: Final = (*LENGTHS, "uniqueItems")
_MOST_LOOKS: Final = 1 << 16  # at a schema: sets of schemas can grow without end in theory
_MOST_BYTES: Final = 1 << 20  # of Positions: many places may repeat many names, and a rank gets all of them
_LONGER: Final = frozenset(["integer", "number", "string"])  # types of values that can be made longer
_SCALARS: Final = _LONGER | {"boolean", "null"}


class _UnfollowedError(Exception):
    """A schema has too many places, or more stands in one of which it is not known how it is written."""


class Followed(NamedTuple):
    """A schema without what ranks follow, and that as Positions; none: they follow nothing."""

    schema: Any
    positions: list[Position]


def split(schema: Any, backend: Backend) -> Followed:
    """Take what is better followed than compiled out of a schema's normal form, which stays as it is."""
    if all(part.keys().isdisjoint(_FOLLOWED) for part in within(schema)):
        return Followed(schema, [])
    try:
        places = _Places(schema, counts_minimum_alone=library(backend).counts_minimum_alone)
    except _UnfollowedError:
        return Followed(schema, [])
    positions, relaxed = places.leading_somewhere(), places.relaxed(schema)
    is_kept = relaxed == schema or not is_sendable(positions)
    return Followed(schema, []) if is_kept else Followed(relaxed, positions)


def is_sendable(positions: Sequence[Position]) -> bool:
    """Return whether ranks can get Positions in one message."""
    return len(positions) <= MOST_POSITIONS and len(msgspec.msgpack.encode(positions)) <= _MOST_BYTES


def renumbered(position: Position, number: Callable[[int], int]) -> Position:
    """Return a Position whose values' parts have other numbers."""
    named = {name: number(index) for name, index in position.properties.items()}
    others = number(position.others)
    return msgspec.structs.replace(
        position,
        properties={name: index for name, index in named.items() if index != others},
        others=others,
        items=number(position.items),
    )


class _Places:
    """The places of a schema."""

    def __init__(self, schema: Any, *, counts_minimum_alone: bool) -> None:
        self._root = schema
        self._counts_minimum_alone = counts_minimum_alone
        self._places: list[list[dict[str, Any]]] = []  # the schemas that may hold at each
        self._known: dict[frozenset[int], int] = {}
        self._looks = 0
        self._undecided: set[int] = set()  # schemas, by id, that must stay as they are
        self._begin([schema])
        self._positions = [self._position(schemas) for schemas in self._places]  # which grow meanwhile
        self._decided = {id(schema) for schemas in self._places for schema in schemas} - self._undecided

    def relaxed(self, value: Any) -> Any:
        """Return a part of the schema without what is followed."""
        if isinstance(value, list):
            return [self.relaxed(part) for part in value]
        if not isinstance(value, dict):
            return value
        dropped = _FOLLOWED if id(value) in self._decided else ()
        return {name: self.relaxed(part) for name, part in value.items() if name not in dropped}

    def leading_somewhere(self) -> list[Position]:
        """Return the places from which what is followed can be reached, the root first."""
        outer: dict[int, set[int]] = {}
        useful: set[int] = set()
        for index, one in enumerate(self._positions):
            if one.minimum or one.maximum is not None or one.unique_items:
                useful.add(index)
            for part in (*one.properties.values(), one.others, one.items):
                outer.setdefault(part, set()).add(index)
        stack = [*useful]
        while stack:
            new = outer.get(stack.pop(), set()) - useful
            useful |= new
            stack += new
        number = {index: position for position, index in enumerate(sorted(useful))}
        return [
            renumbered(self._positions[index], lambda part: number.get(part, NOTHING)) for index in number
        ]

    def _position(self, schemas: list[dict[str, Any]]) -> Position:
        minimum, maximum = self._bounds([schema for schema in schemas if "string" in types(schema)])
        objects = [schema for schema in schemas if "object" in types(schema)]
        names = dict.fromkeys(name for schema in objects for name in schema.get("properties", ()))
        arrays = [schema for schema in schemas if "array" in types(schema)]
        items = [part for schema in arrays for part in schema.get("prefixItems", ())]
        items += [schema.get("items", True) for schema in arrays]
        kinds = self._kinds_of_different_items(arrays)
        return Position(
            minimum=minimum,
            maximum=maximum,
            properties={name: self._begin(keywords.of_name(objects, name)) for name in names},
            others=self._begin(part for schema in objects for part in keywords.of_other_names(schema)),
            items=self._begin(items),
            unique_items=bool(kinds),
            whole_items=bool(kinds) and "number" not in kinds,
        )

    def _bounds(self, strings: list[dict[str, Any]]) -> keywords.Text:
        """Return the bounds of the strings at a place, (0, None) where they stay in the grammar."""
        found = {keywords.text(schema) for schema in strings}
        bounds = found.pop() if len(found) == 1 else None
        if bounds is None or (bounds[1] is None and bounds[0] and not self._counts_minimum_alone):
            self._undecided.update(map(id, strings))
            return 0, None
        return bounds

    def _kinds_of_different_items(self, arrays: list[dict[str, Any]]) -> set[str]:
        """Return the types of items that must differ, if ranks can see to it; else none."""
        wanting = [id(schema) for schema in arrays if "uniqueItems" in schema]
        kinds = self._kinds(arrays[0].get("items", True)) if wanting else set()
        if wanting and (len(arrays) > 1 or "prefixItems" in arrays[0] or kinds.isdisjoint(_LONGER)):
            self._undecided.update(wanting)
            return set()
        return kinds

    def _kinds(self, items: Any) -> set[str]:
        """Return the types of an array's items, if they are scalars without bounds; else none."""
        found: set[str] = set()
        parts = [items]
        for part in parts:  # grows meanwhile
            said = part.keys() - DEFINITIONS if isinstance(part, dict) else set()
            if said == {"$ref"}:
                inner = [referred(self._root, part["$ref"])]
            elif said == {"anyOf"}:
                inner = part["anyOf"]
            elif "type" in said and said <= {"type", "minLength"}:
                found.update([part["type"]] if isinstance(part["type"], str) else part["type"])
                continue
            else:
                return set()
            known = {id(one) for one in parts}
            parts += [one for one in inner if id(one) not in known]
        return found if found <= _SCALARS else set()

    def _begin(self, schemas: Iterable[Any]) -> int:
        """Return the number of the place where these schemas may hold, NOTHING if no value can be there."""
        leaves = {id(leaf): leaf for leaf in self._leaves(schemas)}
        if not leaves:
            return NOTHING
        key = frozenset(leaves)
        if key not in self._known:
            self._known[key] = len(self._places)
            self._places.append([*leaves.values()])
        return self._known[key]

    def _leaves(self, schemas: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Yield the schemas that may hold: what references name, branches, and what stands beside them.

        Of allOf all hold, of anyOf some: a place decides only if all want the same, which covers both.
        """
        stack, seen = [*schemas], set[int]()
        while stack:
            schema = stack.pop()
            self._looks += 1
            if self._looks > _MOST_LOOKS:
                raise _UnfollowedError
            if schema is False or id(schema) in seen:
                continue
            seen.add(id(schema))
            if schema is True or not keywords.is_understood(schema):
                if schema is not True and (children(schema) or "$ref" in schema):
                    raise _UnfollowedError
                yield ANY
                continue
            together = [*schema.get("allOf", ()), *schema.get("anyOf", ())]
            if "$ref" in schema:
                together.append(referred(self._root, schema["$ref"]))
            if not together or keywords.asserts(schema):
                yield schema
            stack += together
