"""Which minLength, maxLength and uniqueItems the ranks can follow, so that they need not be compiled.

A bound can be counted where the path to a string alone tells that it applies: wherever the text may stand
when it begins a value, every schema that may then hold must want the same of a string, and take any
characters. So the schema is followed as a finite automaton is made deterministic: a place is the set of all
schemas that may hold there. What does not decide (a pattern, an enum, branches that differ) keeps its bounds
in the grammar; a schema is relaxed only if all of its places decide. A minLength alone some libraries compile
to masks that cost less than counting.

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

# Sets of schemas can grow without end in theory; such a schema is compiled as it is. So is one whose many
# places repeat many names: a rank gets all of them in one message.
_MOST_PLACES: Final = 4096
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
    if not any(keywords.has_lengths(part) or "uniqueItems" in part for part in within(schema)):
        return Followed(schema, [])
    try:
        places = _Places(schema, counts_minimum_alone=library(backend).counts_minimum_alone)
    except _TooManyError:
        return Followed(schema, [])
    positions = places.leading_somewhere()
    relaxed, unique = places.relaxed(), places.unique - places.undecided - places.swept
    if not (relaxed or unique) or not is_sendable(positions):
        return Followed(schema, [])
    return Followed(_without(schema, relaxed, unique), positions)


def is_sendable(positions: Sequence[Position]) -> bool:
    """Return whether ranks can get Positions in one message."""
    return len(msgspec.msgpack.encode(positions)) <= _MOST_BYTES


def renumbered(position: Position, number: Callable[[int], int]) -> Position:
    """Return a Position whose values' parts have other numbers."""
    named = {name: number(index) for name, index in position.properties.items()}
    others = number(position.others)
    return msgspec.structs.replace(
        position,
        properties={name: index for name, index in named.items() if index != others},
        others=others,
        prefix=[number(index) for index in position.prefix],
        items=number(position.items),
    )


class _Places:
    """The places of a schema.

    Attributes
    ----------
    unique, undecided
        The schemas, by id, whose uniqueItems ranks follow somewhere, and cannot follow somewhere.
    swept
        Those that stand below one that ranks do not read, and stay in the grammar with all that they say.
    """

    def __init__(self, schema: Any, *, counts_minimum_alone: bool) -> None:
        self.unique: set[int] = set()
        self.undecided: set[int] = set()
        self.swept: set[int] = set()
        self._root = schema
        self._counts_minimum_alone = counts_minimum_alone
        self._places: list[list[dict[str, Any]]] = []  # the schemas that may hold at each
        self._known: dict[frozenset[int], int] = {}
        self._looks = 0
        self._compiled: set[int] = set()  # schemas, by id, whose bounds must stay in the grammar
        self._begin([schema])
        self._positions = [self._position(schemas) for schemas in self._places]  # which grow meanwhile

    def relaxed(self) -> set[int]:
        """Return the schemas, by id, whose bounds the grammar need not hold."""
        found = {id(schema) for schemas in self._places for schema in schemas if keywords.has_lengths(schema)}
        return found - self._compiled

    def leading_somewhere(self) -> list[Position]:
        """Return the places from which what is followed can be reached, the root first."""
        outer: dict[int, set[int]] = {}
        useful: set[int] = set()
        for index, one in enumerate(self._positions):
            if one.minimum or one.maximum is not None or one.unique_items:
                useful.add(index)
            for part in (*one.properties.values(), one.others, *one.prefix, one.items):
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
        texts = [keywords.text(schema) for schema in schemas if "string" in types(schema)]
        bounds = texts[0] if texts and all(text == texts[0] for text in texts) else None
        if bounds is None or (bounds[1] is None and not self._counts_minimum_alone):
            bounds = 0, None
            self._compiled.update(map(id, schemas))
        objects = [schema for schema in schemas if "object" in types(schema)]
        names = dict.fromkeys(name for schema in objects for name in schema.get("properties", ()))
        arrays = [schema for schema in schemas if "array" in types(schema)]
        prefixes = [schema.get("prefixItems", ()) for schema in arrays]
        rests = [schema.get("items", True) for schema in arrays]
        kinds = self._kinds_of_different_items(arrays)
        return Position(
            minimum=bounds[0],
            maximum=bounds[1],
            properties={name: self._begin(keywords.of_name(objects, name)) for name in names},
            others=self._begin(part for schema in objects for part in keywords.of_other_names(schema)),
            prefix=[
                self._begin(
                    prefix[index] if index < len(prefix) else rest
                    for prefix, rest in zip(prefixes, rests, strict=True)
                )
                for index in range(max(map(len, prefixes), default=0))
            ],
            items=self._begin(rests),
            unique_items=bool(kinds),
            whole_items=bool(kinds) and "number" not in kinds,
        )

    def _kinds_of_different_items(self, arrays: list[dict[str, Any]]) -> set[str]:
        """Return the types of items that must differ, if ranks can see to it; else none."""
        wanting = [id(schema) for schema in arrays if "uniqueItems" in schema]
        if not wanting:
            return set()
        kinds = self._kinds(arrays[0].get("items", True))
        if len(arrays) > 1 or "prefixItems" in arrays[0] or kinds.isdisjoint(_LONGER):
            self.undecided.update(wanting)
            return set()
        self.unique.update(wanting)
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
            if len(self._places) >= _MOST_PLACES:
                raise _TooManyError
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
                raise _TooManyError
            if schema is False or id(schema) in seen:
                continue
            seen.add(id(schema))
            if not isinstance(schema, dict) or not keywords.is_understood(schema):
                self._compile(schema)
                yield ANY
                continue
            together = [*schema.get("allOf", ()), *schema.get("anyOf", ())]
            if "$ref" in schema:
                together.append(referred(self._root, schema["$ref"]))
            if not together or keywords.asserts(schema):
                yield schema
            stack += together

    def _compile(self, schema: Any) -> None:
        """Keep the bounds of a schema and all below it, references included, in the grammar."""
        stack = [schema]
        while stack:
            current = stack.pop()
            if isinstance(current, dict) and id(current) not in self.swept:
                self.swept.add(id(current))
                self._compiled.add(id(current))
                stack.extend(children(current))
                if "$ref" in current:
                    stack.append(referred(self._root, current["$ref"]))


def _without(value: Any, relaxed: set[int], unique: set[int]) -> Any:
    if isinstance(value, dict):
        dropped = [*LENGTHS] if id(value) in relaxed else []
        dropped += ["uniqueItems"] if id(value) in unique else []
        return {name: _without(part, relaxed, unique) for name, part in value.items() if name not in dropped}
    return [_without(part, relaxed, unique) for part in value] if isinstance(value, list) else value
