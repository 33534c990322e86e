"""The schema sets: each yields different schemas, the same ones at each call."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rankbench.instances import WORDS, Schema
from rankbench.suite import case_schemas


def schemas(name: str, suite: Path | None = None) -> Iterator[Schema]:
    """Yield the schemas of a set, all different; only the public set ends.

    Parameters
    ----------
    suite
        JSON-Schema-Test-Suite's folder of tests, for the public set.
    """
    found = set()
    for schema in SETS[name](random.Random(name)) if name in SETS else _public(suite):
        text = json.dumps(schema)
        if text not in found:
            found.add(text)
            yield schema


def _plain(rng: random.Random) -> Iterator[Schema]:
    """Yield objects of twelve to sixteen scalar properties, as for extraction."""
    while True:
        yield _object({name: _scalar(rng) for name in _names(rng, rng.randint(12, 16))})


def _nested(rng: random.Random) -> Iterator[Schema]:
    """Yield objects that hold arrays of objects, enums and nested objects."""
    while True:
        item = {name: _scalar(rng) for name in _names(rng, rng.randint(2, 4))} | {
            "kind": {"enum": _names(rng, rng.randint(3, 9))}
        }
        names = _names(rng, 6)
        yield _object(
            {
                names[0]: {"type": "array", "items": _object(item)},
                names[1]: _object({name: _scalar(rng) for name in _names(rng, 3)}),
                names[2]: {"enum": _names(rng, 5)},
                names[3]: {"type": "array", "items": {"type": "integer"}},
                names[4]: {"type": "array", "items": {"enum": _names(rng, rng.randint(4, 12))}},
                names[5]: {"type": "string"},
            }
        )


def _bounded(rng: random.Random) -> Iterator[Schema]:
    """Yield plain objects, each string of which has a maxLength of 200 or 2000."""
    for schema in _plain(rng):
        strings = [sub for sub in schema["properties"].values() if sub["type"] == "string"]
        for number, sub in enumerate(strings):
            sub["maxLength"] = (200, 2000)[number % 2]
        if len(strings) > 1:
            yield schema


def _public(suite: Path | None) -> Iterator[Schema]:
    """Yield the schemas of the test suite, where it is here, then the types of Kubernetes' API."""
    from rankbench.openapi import component_schemas  # noqa: PLC0415 - see there

    if suite is not None:
        yield from case_schemas(suite)
    yield from component_schemas()


def _object(properties: dict[str, Any]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _scalar(rng: random.Random) -> Schema:
    kinds = ("string", "string", "string", "integer", "number", "boolean")
    return {"type": rng.choice(kinds)}


def _names(rng: random.Random, count: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        names["_".join(rng.sample(WORDS, rng.choice((1, 2, 2))))] = None
    return list(names)


SETS: Final[dict[str, Callable[[random.Random], Iterator[Schema]]]] = {
    "plain": _plain,
    "nested": _nested,
    "bounded": _bounded,
}
