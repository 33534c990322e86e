"""How deep a schema goes when its references are followed: libraries compile it by calling themselves.

llguidance 1.7 overflows a stack of 8 MiB after 2,500 references in a row, which takes its process along.
"""

from collections.abc import Iterator
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import DEFINITIONS

_MOST_LEVELS: Final = 800
_Reference = tuple[int, int]  # the schema that is referred to, and the level of the reference in its own


def check(schema: Any) -> None:
    """Refuse a normal form whose references follow each other too deep; recursion is as deep as it is long.

    Raises
    ------
    GuidedError
        grammar_too_large, with the path of a reference.
    """
    if not isinstance(schema, dict):
        return
    levels = _Levels(schema).deepest()
    if levels > _MOST_LEVELS:
        path = subschemas.find(schema, "$ref")
        message = f"{path}: references make the schema {levels} levels deep; the limit is {_MOST_LEVELS}"
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message, path=path)


class _Levels:
    """The schemas that references lead to, and how far it is from one to the next."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._schemas: dict[int, Any] = {id(schema): schema}
        self._own: dict[int, int] = {}  # levels of a schema without what it refers to
        self._references: dict[int, list[_Reference]] = {}
        # Tarjan's: schemas that are not finished, and the first of them that each one reaches.
        self._open: list[int] = []
        self._first: dict[int, int] = {}
        self._below: dict[int, int] = {}  # of a finished schema: levels from it on

    def deepest(self) -> int:
        """Return the levels of the deepest way from the root; a circle is as deep as all that is in it."""
        root = id(self._root)
        ways = [(root, self._enter(root))]
        while ways:
            node, references = ways[-1]
            for other, _ in references:
                if other not in self._first:
                    ways.append((other, self._enter(other)))
                    break
                if other not in self._below:
                    self._first[node] = min(self._first[node], self._first[other])
            else:
                ways.pop()
                self._leave(node)
                if ways and node not in self._below:
                    outer = ways[-1][0]
                    self._first[outer] = min(self._first[outer], self._first[node])
        return self._below[root]

    def _enter(self, node: int) -> Iterator[_Reference]:
        self._first[node] = len(self._open)
        self._open.append(node)
        self._read(node)
        return iter(self._references[node])

    def _leave(self, node: int) -> None:
        """Finish the circle that a schema begins, often itself alone."""
        first = self._first[node]
        if self._open[first] != node:
            return
        circle = self._open[first:]
        del self._open[first:]
        inside = sum(self._own[each] for each in circle)
        deepest = inside
        for each in circle:
            for other, level in self._references[each]:
                if other in self._below:
                    deepest = max(deepest, (level if len(circle) == 1 else inside) + self._below[other])
        self._below.update(dict.fromkeys(circle, deepest))

    def _read(self, node: int) -> None:
        """Go through a schema's own levels."""
        deepest, found = 0, []
        level = [self._schemas[node]]
        while level:
            deepest += 1
            following: list[Any] = []
            for part in level:
                if (target := self._target(part)) is not None:
                    found.append((target, deepest))
                # Definitions are compiled only where something refers to them.
                following += subschemas.children(part, without=DEFINITIONS)
            level = following
        self._own[node], self._references[node] = deepest, found

    def _target(self, part: dict[str, Any]) -> int | None:
        if "$ref" not in part:
            return None
        found = subschemas.referred(self._root, part["$ref"])
        if not isinstance(found, dict):
            return None
        self._schemas[id(found)] = found
        return id(found)
