"""contains and uniqueItems, in keywords that a library enforces."""

import itertools
import math
from collections.abc import Iterable
from typing import Any, Final

from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import disjoint, listed, negation
from guided_sidecar.grammar.schema.writing import (
    PLACES,
    Schema,
    Writer,
    either,
    item_at,
    of_other_types,
    unsupported,
)

_MOST_ARRAYS: Final = 512
# To place the items that contains asks for: llguidance follows all of them at once, and with twenty it runs
# out of what it may hold where items can be anything.
_MOST_WAYS: Final = 12


def contain(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write contains, minContains and maxContains."""
    if "contains" not in said:
        return
    at = JsonPath(path, "contains")
    least, most = said.get("minContains", 1), said.get("maxContains")
    if most is None and not least:
        return
    if said["contains"] in (True, {}):
        counted = JsonPath(path, "minContains" if "minContains" in said else "contains")
        writer.also(written, _counted(disjoint.types(said), least, most), counted)
        return
    if least > PLACES:
        raise unsupported(JsonPath(path, "minContains"), f"more than {PLACES} are not enforced")
    item, others, counts = writer.write(said["contains"], at), True, range(least, least + 1)
    if most is not None:
        rest, _ = writer.without(said["contains"], at)
        items = said.get("items", True)
        are_integers = isinstance(items, dict) and disjoint.are_integers(writer.said(items, at))
        others = either(negation.of_integers(rest) if are_integers else rest)
        counts = range(least, min(most, PLACES) + 1)
        if others is False:
            raise unsupported(JsonPath(path, "maxContains"), "what does not meet contains cannot be told")
    found = of_other_types(disjoint.types(said), "array")
    for places in _places(counts, said.get("maxItems", PLACES)) if item is not False else ():
        found.append(item_at(places, item, others=others))
    if item is not False:
        writer.narrow(at)
    writer.also(written, either(found), at)


def _counted(types: frozenset[str], least: int, most: int | None) -> Any:
    """Return what asks for so many items of any kind of arrays, and for nothing of other types."""
    bounds = {"minItems": least} | ({} if most is None else {"maxItems": most})
    return either([*of_other_types(types, "array"), {"type": "array", **bounds}])


def _places(counts: range, most: int) -> list[tuple[int, ...]]:
    """Return which items may be the ones that are asked for: as many ways as are worth writing out."""
    for first in range(min(PLACES, most), 0, -1):
        found = [some for count in counts for some in itertools.combinations(range(first), count)]
        if len(found) <= _MOST_WAYS or first <= counts[0]:
            return found
    return [()] if 0 in counts else []


def differ(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write uniqueItems over a few values that items may have, or leave it to ranks where they can tell."""
    if said.get("uniqueItems") is not True or said.get("maxItems", 2) <= 1:
        return
    at = JsonPath(path, "uniqueItems")
    is_plain = "prefixItems" not in said and "contains" not in said
    values = _values(writer, said.get("items", True), at) if is_plain else None
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
