"""Which minLength, maxLength and uniqueItems the ranks can follow, so that they need not be compiled.

A bound can be counted where the path to a string alone tells that it applies: wherever the text may stand
when it begins a value, every schema that may then hold must want the same of a string, and take any
characters. So the schema is followed as a finite automaton is made deterministic: a place is the set of all
schemas that may hold there. What does not decide (a pattern, an enum, branches that differ) keeps its bounds
in the grammar; a schema is relaxed only if all of its places decide. A minLength alone some libraries compile
to masks that cost less than counting.

So are arrays whose items differ: they do where every schema that may hold of an array wants it, and its items
are strings and numbers that can always be made longer, with `null` and booleans beside them. No library
enforces what is left of uniqueItems.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from guided_contract.counting import NOTHING, Position
from guided_contract.wire import Backend
from guided_grammar.json_schema import keywords
from guided_grammar.json_schema.keywords import ANY, DEFINITIONS, LENGTHS
from guided_grammar.json_schema.subschemas import children, referred, within
from guided_grammar.registry import library
from guided_sidecar.grammar.compile.places import Place, said_of_part
from guided_sidecar.grammar.schema.disjoint import types

# Sets of schemas can grow without end in theory; such a schema is compiled as it is. So is one whose many
# places repeat many names: a rank gets all of them in one message.
_MOST_PLACES: Final = 4096
_MOST_PARTS: Final = 1 << 16
_MOST_LOOKS: Final = 1 << 16  # at a schema, at all places together
_MOST_BYTES: Final = 1 << 20
_LONGER: Final = frozenset(["integer", "number", "string"])  # types of values that can be made longer
_SCALARS: Final = _LONGER | {"boolean", "null"}


class _TooManyError(Exception):
    """A schema has too many places."""


class Followed(NamedTuple):
    """A schema without what ranks follow, and that as Positions; none: they follow nothing."""

    schema: Any
    positions: list[Position]


def split(schema: Any, backend: Backend) -> Followed:
    """Take what is better followed than compiled out of a schema's normal form, which stays as it is."""
    if not any(map(_is_about, within(schema))):
        return Followed(schema, [])
    try:
        analysis = _Analysis(schema, counts_minimum_alone=library(backend).counts_minimum_alone)
        analysis.explore()
    except _TooManyError:
        return Followed(schema, [])
    positions = analysis.positions()
    if not positions or not is_sendable(positions):
        return Followed(schema, [])
    return Followed(_without(schema, analysis.relaxed, analysis.unique), positions)


def is_sendable(positions: Sequence[Position]) -> bool:
    """Return whether ranks can get Positions in one message."""
    return len(msgspec.msgpack.encode(positions)) <= _MOST_BYTES


class _Analysis:
    def __init__(self, schema: Any, *, counts_minimum_alone: bool) -> None:
        self._root = schema
        self._counts_minimum_alone = counts_minimum_alone
        self._places: list[Place] = []
        self._known: dict[frozenset[tuple[int, bool]], int] = {}
        self._looks = 0
        self._compiled: set[int] = set()  # schemas, by id, whose bounds must stay in the grammar
        self._swept: set[int] = set()  # those whose parts are in _compiled, too
        self._undecided: set[int] = set()  # schemas, by id, whose uniqueItems ranks cannot follow
        self._begin([schema])

    def explore(self) -> None:
        """Find all places and what holds there."""
        parts = 0
        for place in self._places:  # grows meanwhile
            self._decide(place)
            self._enter_objects(place)
            self._enter_arrays(place)
            parts += len(place.properties) + len(place.prefix)
            if parts > _MOST_PARTS:
                raise _TooManyError
        for place in self._places:
            self._decide_arrays(place)

    @property
    def relaxed(self) -> set[int]:
        """The schemas, by id, whose bounds the grammar need not hold."""
        found = {id(s) for place in self._places for s in place.schemas if keywords.has_lengths(s)}
        return found - self._compiled

    @property
    def unique(self) -> set[int]:
        """The schemas, by id, whose uniqueItems ranks follow."""
        found = {id(s) for place in self._places if place.unique_items for s in place.schemas}
        others = {id(s) for place in self._places if not place.unique_items for s in place.schemas}
        return found - others - self._undecided

    def positions(self) -> list[Position]:
        """Return the places from which what is followed can be reached, the root first."""
        relaxed = self.relaxed
        counted = [any(id(schema) in relaxed for schema in place.schemas) for place in self._places]
        useful = self._leading_to(
            {index for index, place in enumerate(self._places) if counted[index] or place.unique_items}
        )
        order = [index for index in range(len(self._places)) if index in useful]
        if not order or order[0] != 0:
            return []
        number = {index: position for position, index in enumerate(order)}
        return [self._position(self._places[index], number, is_counted=counted[index]) for index in order]

    def _position(self, place: Place, number: dict[int, int], *, is_counted: bool) -> Position:
        minimum, maximum = place.bounds if is_counted and place.bounds else (0, None)
        others = number.get(place.others, NOTHING)
        items = number.get(place.items, NOTHING)
        properties = {name: number.get(index, NOTHING) for name, index in place.properties.items()}
        prefix = [number.get(index, NOTHING) for index in place.prefix]
        while prefix and prefix[-1] == items:
            prefix.pop()
        return Position(
            minimum=minimum,
            maximum=maximum,
            properties={name: index for name, index in properties.items() if index != others},
            others=others,
            prefix=prefix,
            items=items,
            unique_items=place.unique_items,
            whole_items=place.whole_items,
        )

    def _leading_to(self, goals: set[int]) -> set[int]:
        outer: dict[int, set[int]] = {}
        for index, place in enumerate(self._places):
            for part in place.parts():
                outer.setdefault(part, set()).add(index)
        found, stack = set(goals), list(goals)
        while stack:
            new = outer.get(stack.pop(), set()) - found
            found |= new
            stack.extend(new)
        return found

    def _decide(self, place: Place) -> None:
        """Find what a string must be here; where that differs, or is not only a length, compile it."""
        texts = [keywords.text(schema) for schema in place.schemas if "string" in types(schema)]
        bounds = texts[0] if texts and all(text == texts[0] for text in texts) else None
        if bounds is not None and (bounds[1] is not None or self._counts_minimum_alone):
            place.bounds = bounds
        else:
            self._compiled.update(id(schema) for schema in place.schemas)

    def _decide_arrays(self, place: Place) -> None:
        """Find whether an array's items must differ here, and whether ranks can see to it."""
        arrays = [
            schema for schema in place.schemas if "array" in types(schema) and not place.leaves_open(schema)
        ]
        wanting = [schema for schema in arrays if "uniqueItems" in schema]
        if not wanting:
            return
        kinds = [self._kinds(schema.get("items", True)) for schema in arrays]
        if len(wanting) == len(arrays) and not place.prefix and all(kinds) and len({*kinds}) == 1:
            place.unique_items = True
            place.whole_items = "number" not in kinds[0]
        else:
            self._undecided.update(map(id, wanting))

    def _kinds(self, items: Any) -> frozenset[str]:
        """Return the types of an array's items, if they are scalars without end; else none."""
        found: set[str] = set()
        for leaf, is_beside in self._leaves([items]):
            if is_beside or not leaf.keys() <= {"type", "minLength", *DEFINITIONS}:
                return frozenset()
            kinds = leaf.get("type", "object")
            found.update([kinds] if isinstance(kinds, str) else kinds)
        is_endless = found <= _SCALARS and not found.isdisjoint(_LONGER)
        return frozenset(found) if is_endless else frozenset()

    def _enter_objects(self, place: Place) -> None:
        schemas = [schema for schema in place.schemas if "object" in types(schema)]
        names = dict.fromkeys(name for schema in schemas for name in schema.get("properties", ()))
        place.properties = {
            name: self._begin(said_of_part(place, schemas, functools.partial(keywords.of_name, name=name)))
            for name in names
        }
        place.others = self._begin(
            said_of_part(place, schemas, lambda alone: keywords.of_other_names(alone[0]))
        )

    def _enter_arrays(self, place: Place) -> None:
        schemas = [schema for schema in place.schemas if "array" in types(schema)]
        prefixes = [schema.get("prefixItems", ()) for schema in schemas]
        for index in range(max(map(len, prefixes), default=0)):
            parts = [
                prefix[index] if index < len(prefix) else schema.get("items", True)
                for prefix, schema in zip(prefixes, schemas, strict=True)
            ]
            place.prefix.append(self._begin(parts))
        place.items = self._begin(said_of_part(place, schemas, lambda alone: [alone[0].get("items", True)]))

    def _begin(self, schemas: Iterable[Any]) -> int:
        """Return the number of the place where these schemas may hold, NOTHING if no value can be there."""
        leaves: dict[int, dict[str, Any]] = {}
        beside: set[int] = set()
        for leaf, is_beside in self._leaves(schemas):
            if not is_beside:
                beside.discard(id(leaf))
            elif id(leaf) not in leaves:
                beside.add(id(leaf))
            leaves[id(leaf)] = leaf
        if not leaves:
            return NOTHING
        key = frozenset((number, number in beside) for number in leaves)
        if key not in self._known:
            if len(self._places) >= _MOST_PLACES:
                raise _TooManyError
            self._known[key] = len(self._places)
            self._places.append(Place(tuple(leaves.values()), frozenset(beside)))
        return self._known[key]

    def _leaves(self, schemas: Iterable[Any]) -> Iterator[tuple[dict[str, Any], bool]]:
        """Yield the schemas that may hold, and whether never alone.

        Those are what references name, branches, and what stands beside them. Of allOf all hold, of anyOf
        some: a place decides only if all want the same, which covers both.
        """
        stack, seen = [(schema, False) for schema in schemas], set()
        while stack:
            schema, is_beside = stack.pop()
            self._looks += 1
            if self._looks > _MOST_LOOKS:
                raise _TooManyError
            if schema is False or (id(schema), is_beside) in seen:
                continue
            seen.add((id(schema), is_beside))
            if not isinstance(schema, dict) or not keywords.is_understood(schema):
                self._compile(schema)
                yield ANY, is_beside
                continue
            together = [[branch] for branch in sorted(schema.get("allOf", ()), key=_is_open)]
            if "$ref" in schema:
                together.append([referred(self._root, schema["$ref"])])
            if "anyOf" in schema:
                together.append(schema["anyOf"])
            asserts = not together or keywords.asserts(schema)
            if asserts:
                yield schema, is_beside
            for index, branches in enumerate(together):
                stack.extend((branch, is_beside or asserts or index > 0) for branch in branches)

    def _compile(self, schema: Any) -> None:
        """Keep the bounds of a schema and all below it, references included, in the grammar."""
        stack = [schema]
        while stack:
            current = stack.pop()
            if isinstance(current, dict) and id(current) not in self._swept:
                self._swept.add(id(current))
                self._compiled.add(id(current))
                stack.extend(children(current))
                if "$ref" in current:
                    stack.append(referred(self._root, current["$ref"]))


def _is_open(schema: Any) -> bool:
    return not isinstance(schema, dict) or schema.get("additionalProperties") is not False


def _is_about(schema: dict[str, Any]) -> bool:
    return keywords.has_lengths(schema) or "uniqueItems" in schema


def _without(value: Any, relaxed: set[int], unique: set[int]) -> Any:
    if isinstance(value, dict):
        dropped = {
            *(LENGTHS if id(value) in relaxed else ()),
            *(["uniqueItems"] if id(value) in unique else ()),
        }
        return {name: _without(part, relaxed, unique) for name, part in value.items() if name not in dropped}
    return [_without(part, relaxed, unique) for part in value] if isinstance(value, list) else value
