"""Where schemas stand inside a JSON Schema, so that a property named `not` is not taken for the keyword."""

import functools
import json
import urllib.parse
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

from guided_grammar.json_schema.keywords import BRANCHES

MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SINGLE: Final = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS, _SINGLE, _LISTS = map(frozenset, (MAPS, SINGLE, LISTS))


class JsonPath(NamedTuple):
    """A JSONPath, written out where it is said: a long name would else be in memory once for each path.

    Attributes
    ----------
    last
        A key, or the index of a list's item.
    """

    before: "JsonPath | None"
    last: str | int

    def __str__(self) -> str:
        parts: list[str] = []
        way: JsonPath = self
        while way.before is not None:
            parts.append(_key(way.last) if isinstance(way.last, str) else f"[{way.last}]")
            way = way.before
        return "".join(["$", *reversed(parts)])


ROOT: Final = JsonPath(None, "$")


class Place(NamedTuple):
    """One schema object and its JSONPath."""

    way: JsonPath
    schema: dict[str, Any]

    @property
    def path(self) -> str:
        """Return the JSONPath."""
        return str(self.way)

    def types(self) -> frozenset[str]:
        """Return the types that the schema names; none named means that any is allowed."""
        named = self.schema.get("type")
        names = named if isinstance(named, list) else [named]
        return frozenset(name for name in names if isinstance(name, str))

    def allows(self, *types: str) -> bool:
        """Return whether an instance of one of these types can be meant here."""
        named = self.types()
        return not named or not named.isdisjoint(types)

    def at(self, keyword: str) -> str:
        """Return the JSONPath of one of the schema's keywords."""
        return step(self.path, keyword)


def places(schema: Any) -> Iterator[Place]:
    """Yield every schema object, parents first; the schema has been checked against its metaschema."""
    stack = [Place(ROOT, schema)] if isinstance(schema, dict) else []
    while stack:
        place = stack.pop()
        yield place
        stack += reversed(inner(place))


def inner(place: Place) -> list[Place]:
    """Return the schema objects right below one."""
    return [Place(functools.reduce(JsonPath, keys, place.way), part) for keys, part in _below(place.schema)]


def along(schema: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the schema objects that a JSONPath leads through, from the root on, each with its own path."""
    way = [("$", schema)] if isinstance(schema, dict) else []
    for outer, part in way:  # grows meanwhile
        for place in inner(Place(ROOT, part)):
            here = below(outer, place.path)
            if path == here or path.startswith((f"{here}.", f"{here}[")):
                way.append((here, place.schema))
                break
    return way


def within(schema: Any) -> list[dict[str, Any]]:
    """Return every schema object that `places` yields, level by level, in a fifth of its time: no paths."""
    found = [schema] if isinstance(schema, dict) else []
    for outer in found:  # grows meanwhile
        found += children(outer)
    return found


def children(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schema objects right below one."""
    return [part for _, part in _below(schema)]


def judging(part: Any, root: Any = None, keywords: Collection[str] = BRANCHES) -> list[dict[str, Any]]:
    """Return all that judges a value by a schema: itself, and what those hold and refer to, in their order.

    Parameters
    ----------
    root
        Below which references are followed; None: they are not.
    keywords
        Those of BRANCHES of which something holds.
    """
    found: dict[int, dict[str, Any]] = {}
    stack = [part]
    while stack:
        one = stack.pop()
        if not isinstance(one, dict) or id(one) in found:
            continue
        found[id(one)] = one
        below = [each for keyword in keywords for each in one.get(keyword, ())]
        if root is not None and "$ref" in one:
            below.append(referred(root, one["$ref"]))
        stack += reversed(below)
    return list(found.values())


def with_each_of_tag(tag: Any, change: Callable[[JsonPath, Any], Any]) -> Any:
    """Return a structural tag, of the old form or the new, with `change(path, schema)` for its schemas."""

    def changed(way: JsonPath, current: Any) -> Any:
        if isinstance(current, list):
            return [changed(JsonPath(way, number), part) for number, part in enumerate(current)]
        if not isinstance(current, dict):
            return current
        # {"begin": ..., "schema": ...} of the old form; {"type": "json_schema", ...} of the new.
        keyword = next((key for key in ("json_schema", "schema") if key in current), None)
        return {
            key: (change if key == keyword else changed)(JsonPath(way, key), part)
            for key, part in current.items()
        }

    return changed(ROOT, tag)


def referred(root: Any, pointer: str) -> Any:
    """Return what a local reference names, `#` or `#/...`; see `led_to`."""
    return led_to(root, pointer)[0]


def led_to(root: Any, pointer: str) -> tuple[Any, JsonPath]:
    """Return what a local reference names, `#` or `#/...`, and its path.

    Raises
    ------
    LookupError
        Nothing is there.
    """
    if pointer != "#" and not pointer.startswith("#/"):
        raise LookupError(pointer)
    current, way = root, ROOT
    for part in urllib.parse.unquote(pointer).split("/")[1:]:
        key: Any = part.replace("~1", "/").replace("~0", "~")
        if isinstance(current, list) and key.isdecimal():
            key = int(key)
        elif not isinstance(current, dict):
            raise LookupError(pointer)
        current, way = current[key], JsonPath(way, key)
    return current, way


def step(path: str, key: str) -> str:
    """Return the JSONPath of a key below `path`."""
    return path + _key(key)


def below(path: str, inner: str | None) -> str:
    """Return the JSONPath of what has the path `inner` in a schema that itself stands at `path`."""
    return path + (inner or "$").removeprefix("$")


def _key(key: str) -> str:
    if key.replace("$", "_").isidentifier():
        return f".{key}"
    quoted = json.dumps(key, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"['{quoted}']"  # as a normalized path of RFC 9535 has it: no message has a raw end of line


def _below(schema: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Yield the schema objects right below one, each with the keys that lead there."""
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in _SINGLE:
                yield (keyword,), value
            elif keyword in _MAPS:
                yield from (((keyword, name), part) for name, part in value.items() if isinstance(part, dict))
        elif isinstance(value, list) and keyword in _LISTS:
            yield from (((keyword, n), part) for n, part in enumerate(value) if isinstance(part, dict))


def find(schema: Any, keyword: str) -> str | None:
    """Return the path of a keyword's first use, or None."""
    return next((place.at(keyword) for place in places(schema) if keyword in place.schema), None)
