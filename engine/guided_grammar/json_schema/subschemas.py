"""Where schemas stand inside a JSON Schema, so that a property named `not` is not taken for the keyword."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

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


class Place(NamedTuple):
    """One schema object and its JSONPath."""

    path: str
    schema: dict[str, Any]

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


def walk(schema: Any) -> Iterator[Place]:
    """Yield every schema object, parents first; the schema has been checked against its metaschema."""
    # One child at a time: with all of them, a long name would be in memory once for each.
    stack = [iter([("$", schema)])]
    while stack:
        path, current = next(stack[-1], (None, None))
        if path is None:
            stack.pop()
        elif isinstance(current, dict):
            yield Place(path, current)
            stack.append(_children(path, current))


def within(schema: Any) -> list[dict[str, Any]]:
    """Return every schema object that `walk` yields, level by level, in a fifth of its time: no paths."""
    found = [schema] if isinstance(schema, dict) else []
    for outer in found:  # grows meanwhile
        for keyword, value in outer.items():
            if isinstance(value, dict):
                if keyword in _SINGLE:
                    found.append(value)
                elif keyword in _MAPS:
                    found += [part for part in value.values() if isinstance(part, dict)]
            elif isinstance(value, list) and keyword in _LISTS:
                found += [part for part in value if isinstance(part, dict)]
    return found


def in_tag(tag: Any) -> Iterator[tuple[str, Any]]:
    """Yield the JSON schemas inside a structural tag with their JSONPaths, in the old form or the new."""
    stack = [("$", tag)]
    while stack:
        path, current = stack.pop()
        if isinstance(current, list):
            stack.extend((f"{path}[{number}]", child) for number, child in enumerate(current))
        elif isinstance(current, dict):
            # {"begin": ..., "schema": ...} of the old form; {"type": "json_schema", ...} of the new.
            keyword = next((key for key in ("json_schema", "schema") if key in current), None)
            if keyword is not None:
                yield step(path, keyword), current[keyword]
            rest = ((key, child) for key, child in current.items() if key != keyword)
            stack.extend((step(path, key), child) for key, child in rest)


def referred(root: Any, pointer: str) -> Any:
    """Return what a local reference without escapes names, `#` or `#/...`.

    Raises
    ------
    LookupError
        Nothing is there.
    """
    current = root
    for part in pointer[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(current, dict):
            current = current[key]
        elif isinstance(current, list) and key.isdecimal():
            current = current[int(key)]
        else:
            raise LookupError(pointer)
    return current


def step(path: str, key: str) -> str:
    """Return the JSONPath of a key below `path`."""
    if key.replace("$", "_").isidentifier():
        return f"{path}.{key}"
    quoted = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"{path}['{quoted}']"


def below(path: str, inner: str | None) -> str:
    """Return the JSONPath of what has the path `inner` in a schema that itself stands at `path`."""
    return path + (inner or "$").removeprefix("$")


def _children(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        if keyword in MAPS and isinstance(value, dict):
            base = step(path, keyword)
            yield from ((step(base, name), child) for name, child in value.items())
        elif keyword in LISTS and isinstance(value, list):
            base = step(path, keyword)
            yield from ((f"{base}[{number}]", child) for number, child in enumerate(value))
        elif keyword in SINGLE:
            yield step(path, keyword), value


def find(schema: Any, keyword: str) -> str | None:
    """Return the path of a keyword's first use, or None."""
    return next((place.at(keyword) for place in walk(schema) if keyword in place.schema), None)
