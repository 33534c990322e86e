"""What hostile schemas cost the passes of plain Python over them: time in proportion to their size."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from guided_contract.config import CompileConfig
from guided_contract.errors import GuidedError
from guided_contract.wire import Kind
from guided_grammar.registry import library
from guided_sidecar.grammar.compile import followed
from guided_sidecar.grammar.schema import additional_properties, limits, normal, schema

Family = Callable[[int], dict[str, Any]]
BOUNDED = {"type": "string", "maxLength": 3}


def numbered(count: int, make: Callable[[int], Any]) -> dict[str, Any]:
    return {f"p{number}": make(number) for number in range(count)}


def object_of(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)[:1]}


def chain(count: int) -> dict[str, Any]:
    links = numbered(count, lambda n: object_of({"a": {"$ref": f"#/$defs/p{n + 1}"}, "s": BOUNDED}))
    return {"$defs": {**links, f"p{count}": BOUNDED}, "$ref": "#/$defs/p0"}


def tangle(count: int) -> dict[str, Any]:
    """Return schemas that refer to several others each: many sets of them hold somewhere."""

    def one(number: int) -> dict[str, Any]:
        several = [{"$ref": f"#/$defs/p{number * factor % count}"} for factor in (3, 5, 11)]
        return object_of({"a": several[0], "b": {"anyOf": several[1:]}, "s": BOUNDED})

    return {"$defs": numbered(count, one), "$ref": "#/$defs/p1"}


FAMILIES: dict[str, Family] = {
    "references before an id": lambda n: object_of(
        {**numbered(n, lambda _: {"$ref": "x"}), "z": {"$id": "https://example.org/"}}
    ),
    "oneOf of constants": lambda n: {"oneOf": [{"const": number} for number in range(n)]},
    "oneOf told apart by a property": lambda n: {
        "oneOf": [object_of({"kind": {"const": number}}) for number in range(n)]
    },
    "anyOf of many names": lambda n: {"anyOf": [object_of({f"p{number}": BOUNDED}) for number in range(n)]},
    "values beside many properties": lambda n: {
        "enum": [{"a": number} for number in range(n)],
        "properties": numbered(n, lambda _: {}),
    },
    "references in a row": chain,
    "references to each other": tangle,
    "many small schemas": lambda n: object_of(numbered(n, lambda _: {})),
    "many faults": lambda n: object_of(numbered(n, lambda _: {"type": "x"})),
}


# From what size on a family is given up: below, its steps may grow faster.
GIVEN_UP = {"anyOf of many names": 260, "references to each other": 260}


def passes(parsed: Any) -> None:
    """Do all that precedes a library."""
    try:
        schema.check(parsed)
        form = normal.read(parsed).schema
    except GuidedError:
        return
    library("xgrammar").lacks("json", form)
    library("guidance").lacks("json", form)
    followed.split(additional_properties.close(form), "xgrammar")


def calls(work: Callable[..., object], *arguments: Any) -> int:
    """Return how many functions it calls."""
    count = 0

    def seen(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        work(*arguments)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("family", FAMILIES)
def test_twice_the_schema_takes_about_twice_the_steps(family: str) -> None:
    passes(FAMILIES[family](4))  # what is made once, and kept
    count = GIVEN_UP.get(family, 100)
    once, twice = (calls(passes, FAMILIES[family](size)) for size in (count, 2 * count))
    assert twice <= 2.6 * once + 5000


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "hostile",
    [
        {"type": "string", "pattern": "{" + "1" * 200_000},
        {"type": "string", "pattern": "{1" * 100_000},
        {"type": "string", "enum": ["a" * 40 + "!"], "pattern": "^(a+)+$"},
        {"type": "object", "enum": [{"a" * 40 + "!": 1}], "patternProperties": {"^(a+)+$": {"type": "null"}}},
    ],
    ids=["digits", "braces", "a pattern for ever", "names for ever"],
)
def test_a_pattern_is_read_in_no_time(hostile: dict[str, Any]) -> None:
    """Read by the square or worse, each takes minutes or for ever."""
    library("xgrammar").lacks("json", hostile)
    library("guidance").lacks("json", hostile)


LONG = "k" * 100_000
LONG_NAMES: dict[str, tuple[Kind, Any]] = {
    "properties": ("json", object_of({LONG: object_of(numbered(5000, lambda _: {}))})),
    "alternatives": ("json", {"properties": {LONG: {"anyOf": [{}] * 40_000}}}),
    "a tag's numbers": ("structural_tag", {LONG: [0] * 70_000}),
    "a tag's schemas": ("structural_tag", {LONG: [{"schema": {"enum": [1]}}] * 8_000}),
    "a tag's triggers": ("structural_tag", {"triggers": ["<"] * 30_000, LONG: {LONG: {}}}),
}


@pytest.mark.parametrize(("kind", "hostile"), LONG_NAMES.values(), ids=LONG_NAMES)
def test_a_long_name_is_in_memory_a_few_times_alone(kind: Kind, hostile: Any) -> None:
    """It stands in the path of all that is below it; a process that took 8 GB for it was killed."""
    text = json.dumps(hostile)
    roomy = CompileConfig(max_schema_bytes=1 << 20, max_properties=1 << 20, max_enum=1 << 20)
    tracemalloc.start()
    try:
        limits.parsed(kind, text, roomy)
        assert tracemalloc.get_traced_memory()[1] < 50 * len(text)
    finally:
        tracemalloc.stop()
