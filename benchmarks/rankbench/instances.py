"""Draws JSON documents that are valid under a schema, of the keywords that the benchmark's schemas use."""

import random
from collections.abc import Callable
from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final = (
    "the quick brown fox jumps over lazy dog while people read many books about history and science in old "
    "city library near river station market garden winter summer morning value account region system order "
    "customer product service network storage record message status number total average report section"
)
WORDS: Final = tuple(_TEXT.split(" "))
_FORMATS: Final = {
    "date": "2026-11-21",
    "date-time": "2026-11-21T04:05:06Z",
    "email": "someone@example.org",
    "uri": "https://example.org/some/page",
    "uuid": "3f2b8c1e-5d4a-4c6b-9e7f-0a1b2c3d4e5f",
    "ipv4": "192.0.2.1",
}
# What a schema without a type speaks of.
_TELLING: Final = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems"},
}
_MOST_DEPTH: Final = 6


class UnsupportedSchemaError(Exception):
    """The schema uses what this module cannot draw."""


class Instances:
    """Draws documents of one schema.

    Parameters
    ----------
    root
        The schema; `$ref` points into it.
    size
        Strings have up to about four times so many words, arrays up to so many items.
    """

    def __init__(self, root: Schema, rng: random.Random, size: int) -> None:
        self._root = root
        self._rng = rng
        self._size = size

    def draw(self) -> Any:
        """Return one document.

        Raises
        ------
        UnsupportedSchemaError
            A keyword is not known here, or the schema nests too deeply.
        """
        return self._draw(self._root, 0)

    def _draw(self, schema: Any, depth: int) -> Any:
        if schema is True:
            return self._string({}, depth)
        if not isinstance(schema, dict) or depth > _MOST_DEPTH:
            raise UnsupportedSchemaError(f"not drawn: {schema!r:.80}")
        if "$ref" in schema:
            return self._draw(self._resolved(schema["$ref"]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._rng.choice(schema["enum"])
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._draw_any(schema[keyword], depth)
        # One that says nothing of its type takes a string, too; whether it is valid is judged by others.
        told = (kind for kind, telling in _TELLING.items() if telling & set(schema))
        kind = schema.get("type") or next(told, "string")
        if isinstance(kind, list):
            kind = next(name for name in kind if name != "null")
        if kind not in _DRAWERS:
            raise UnsupportedSchemaError(f"type {kind!r}")
        return _DRAWERS[kind](self, schema, depth)

    def _draw_any(self, branches: list[Any], depth: int) -> Any:
        for branch in sorted(branches, key=lambda branch: branch == {"type": "null"}):
            try:
                return self._draw(branch, depth + 1)
            except UnsupportedSchemaError:
                continue
        raise UnsupportedSchemaError("no branch can be drawn")

    def _resolved(self, reference: str) -> Any:
        found: Any = self._root
        if not reference.startswith("#"):
            raise UnsupportedSchemaError(reference)
        for part in reference[1:].split("/")[1:]:
            if not isinstance(found, dict) or part not in found:
                raise UnsupportedSchemaError(reference)
            found = found[part]
        return found

    def _object(self, schema: Schema, depth: int) -> Any:
        made = {}
        required = schema.get("required", ())
        for name, sub in schema.get("properties", {}).items():
            try:
                made[name] = self._draw(sub, depth + 1)
            except UnsupportedSchemaError:
                if name in required:
                    raise
        if missing := set(required) - set(made):
            raise UnsupportedSchemaError(f"required but not described: {missing}")
        return made

    def _array(self, schema: Schema, depth: int) -> Any:
        least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", 1 << 20))
        count = min(most, max(least, self._rng.randint(1, self._size + 1)))
        first = [self._draw(sub, depth + 1) for sub in schema.get("prefixItems", ())]
        rest = schema.get("items", True)
        return first + [self._draw(rest, depth + 1) for _ in range(count - len(first)) if rest is not False]

    def _string(self, schema: Schema, _depth: int) -> Any:
        if "pattern" in schema:
            raise UnsupportedSchemaError("pattern")
        if "format" in schema:
            if schema["format"] not in _FORMATS:
                raise UnsupportedSchemaError(schema["format"])
            return _FORMATS[schema["format"]]
        words = self._rng.choices(WORDS, k=self._rng.randint(2, 2 + 4 * self._size))
        text = " ".join(words)[: int(schema.get("maxLength", 1 << 20))]
        return text + "x" * (int(schema.get("minLength", 0)) - len(text))

    def _integer(self, schema: Schema, _depth: int) -> Any:
        least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        most = schema.get("maximum", max(least, 0) + 999)
        return self._rng.randint(int(least), int(most))

    def _number(self, schema: Schema, depth: int) -> Any:
        return self._integer(schema, depth) + (0.0 if "maximum" in schema else self._rng.randint(1, 99) / 100)

    def _boolean(self, _schema: Schema, _depth: int) -> Any:
        return self._rng.random() < 0.5

    def _null(self, _schema: Schema, _depth: int) -> Any:
        return None


_DRAWERS: Final[dict[str, Callable[[Instances, Schema, int], Any]]] = {
    "object": Instances._object,  # noqa: SLF001 - the class's own table
    "array": Instances._array,  # noqa: SLF001
    "string": Instances._string,  # noqa: SLF001
    "integer": Instances._integer,  # noqa: SLF001
    "number": Instances._number,  # noqa: SLF001
    "boolean": Instances._boolean,  # noqa: SLF001
    "null": Instances._null,  # noqa: SLF001
}
