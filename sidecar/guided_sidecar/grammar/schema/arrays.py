"""uniqueItems, in keywords that a library enforces."""

import itertools
import math
from collections.abc import Iterable
from typing import Any, Final

from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import disjoint, listed
from guided_sidecar.grammar.schema.writing import (
    Schema,
    Writer,
    either,
    of_other_types,
    unsupported,
)

_MOST_ARRAYS: Final = 512


def differ(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write uniqueItems over a few values that items may have, or leave it to ranks where they can tell."""
    if said.get("uniqueItems") is not True or said.get("maxItems", 2) <= 1:
        return
    at = JsonPath(path, "uniqueItems")
    values = _values(writer, said.get("items", True), at) if "prefixItems" not in said else None
    if values is None:
        written["uniqueItems"] = True
        return
    most = min(said.get("maxItems", len(values)), len(values))
    sizes = range(said.get("minItems", 0), most + 1)
    draw: Any = itertools.permutations
    if _are_many(math.perm(len(values), size) for size in sizes):
        draw = itertools.combinations  # in the enum's order
        writer.narrow(at)
    if _are_many(math.comb(len(values), size) for size in sizes):
        raise unsupported(at, f"items have {len(values)} values, and too many arrays hold each once")
    arrays = [list(chosen) for size in sizes for chosen in draw(values, size)]
    for keyword in ("items", "minItems", "maxItems"):
        written.pop(keyword, None)
    writer.also(written, either([*of_other_types(disjoint.types(said), "array"), {"enum": arrays}]), at)


def _are_many(counts: Iterable[int]) -> bool:
    """Return whether they are too many together; later ones, of thousands of digits, are not counted then."""
    return any(total > _MOST_ARRAYS for total in itertools.accumulate(counts))


def _values(writer: Writer, items: Any, path: JsonPath) -> list[Any] | None:
    """Return the values that items may have, each once; None: they are not listed."""
    items = writer.resolved(items, path)
    found = listed.kept(writer.said(items, path), writer.draft) if isinstance(items, dict) else None
    return None if found is None else list({disjoint.text(value): value for value in found}.values())
