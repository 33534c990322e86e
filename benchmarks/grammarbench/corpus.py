"""The schemas: the same ones at each run, the public ones chosen by hash, ours from fixed seeds."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import schemas as small
from rankbench import openapi, suite
from rankbench.schemas import schemas as of_rankbench

_KUBERNETES: Final = 320
_SUITE: Final = 100
_OWN: Final = {"small": 100, "nested": 50, "bounded": 50}
# Of all but the suite's. Another Kubernetes client has other types: then this corpus is no longer the one
# that the figures in docs/performance.md are of.
DIGEST: Final = "6a385d8bacc2b42e"


@dataclass(frozen=True, slots=True)
class Entry:
    """One schema's text, and where it is from."""

    source: str
    text: str


def corpus(suite_tests: Path | None) -> list[Entry]:
    """Return all schemas.

    Parameters
    ----------
    suite_tests
        JSON-Schema-Test-Suite's folder of tests; None: without its schemas.
    """
    fixed = [
        *_entries("Kubernetes", _by_hash(openapi.all_schemas(), _KUBERNETES)),
        *_entries("small", map(small.schema, range(_OWN["small"]))),
        *_entries("nested", itertools.islice(of_rankbench("nested"), _OWN["nested"])),
        *_entries("bounded", itertools.islice(of_rankbench("bounded"), _OWN["bounded"])),
    ]
    if suite_tests is None:
        return fixed
    return [*_entries("suite", _by_hash(suite.case_schemas(suite_tests), _SUITE)), *fixed]


def digest(entries: Iterable[Entry]) -> str:
    """Return a hash of all schemas but the suite's."""
    texts = "\n".join(entry.text for entry in entries if entry.source != "suite")
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def _entries(source: str, found: Iterable[Any]) -> Iterator[Entry]:
    return (Entry(source, json.dumps(schema)) for schema in found)


def _by_hash(found: Iterable[Any], count: int) -> list[Any]:
    """Return so many different schemas, whatever their size: those whose text's hash is smallest."""
    texts = {json.dumps(schema): schema for schema in found}
    return [texts[text] for text in sorted(texts, key=_hash)[:count]]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
