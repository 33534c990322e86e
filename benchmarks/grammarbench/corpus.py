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

from grammarbench import models
from guided_contract.wire import Kind
from support.compositions import documents

_KUBERNETES: Final = 160
_SUITE: Final = 100
_OWN: Final = {"small": 40, "nested": 30, "bounded": 30}
_TAGS: Final = 10
_REGEXES: Final = (
    r"\d{4}-\d{2}-\d{2}",
    r"(yes|no|maybe)",
    r"[A-Z]{2}[0-9]{6}",
    r"#[0-9a-f]{6}",
    r"\$[0-9]{1,3}(,[0-9]{3})*\.[0-9]{2}",
    r"(\+49|0)[1-9][0-9]{5,12}",
    r"[a-z]+(-[a-z]+)*",
    r"([01][0-9]|2[0-3]):[0-5][0-9]",
    r"(SELECT|INSERT|UPDATE) [a-z_]+",
    r"[^\n]{1,80}",
)
_OF_MODELS: Final = {"pydantic": 200, "tools": 80, "OpenAPI": 120}
# Of all but the suite's. Another Kubernetes client has other types: then this corpus is no longer the one
# that the figures in docs/performance.md are of.
DIGEST: Final = "64847ace202026f3"


@dataclass(frozen=True, slots=True)
class Entry:
    """One grammar's text, of what kind it is, and where it is from."""

    source: str
    text: str
    kind: Kind = "json"


def corpus(suite_tests: Path | None) -> list[Entry]:
    """Return all schemas.

    Parameters
    ----------
    suite_tests
        JSON-Schema-Test-Suite's folder of tests; None: without its schemas.
    """
    fixed = [
        *_entries("pydantic", _different(models.pydantic_schemas(_OF_MODELS["pydantic"]))),
        *_entries("tools", _different(models.strict_tools(_OF_MODELS["tools"]))),
        *_entries("OpenAPI", _different(models.components(_OF_MODELS["OpenAPI"]))),
        *_entries("Kubernetes", _by_hash(openapi.all_schemas(), _KUBERNETES)),
        *_entries("small", map(small.schema, range(_OWN["small"]))),
        *_entries("nested", itertools.islice(of_rankbench("nested"), _OWN["nested"])),
        *_entries("bounded", itertools.islice(of_rankbench("bounded"), _OWN["bounded"])),
    ]
    fixed += [Entry("regex", text, "regex") for text in _REGEXES]
    fixed += [Entry("tag", text, "structural_tag") for text in map(_tag, range(_TAGS))]
    if suite_tests is None:
        return fixed
    return [*_entries("suite", _by_hash(suite.case_schemas(suite_tests), _SUITE)), *fixed]


def outside(folder: Path) -> list[Entry]:
    """Return the schemas of the archives in a folder, as `make fuzz-schemas DOCUMENTS=` reads them."""
    return list(_entries("outside", documents.drawn(folder)))


def digest(entries: Iterable[Entry]) -> str:
    """Return a hash of all schemas but the suite's."""
    texts = "\n".join(entry.text for entry in entries if entry.source != "suite")
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def _tag(number: int) -> str:
    """Return a structural tag of two tools, as a tool parser asks for it."""
    tools = list(models.strict_tools(_OF_MODELS["tools"]))[2 * number : 2 * number + 2]
    structures = [
        {"begin": f"<tool_{index}>", "schema": tool, "end": f"</tool_{index}>"}
        for index, tool in enumerate(tools)
    ]
    return json.dumps({"structures": structures, "triggers": ["<tool_"]})


def _entries(source: str, found: Iterable[Any]) -> Iterator[Entry]:
    return (Entry(source, json.dumps(schema)) for schema in found)


def _different(found: Iterable[Any]) -> list[Any]:
    return list({json.dumps(schema): schema for schema in found}.values())


def _by_hash(found: Iterable[Any], count: int) -> list[Any]:
    """Return so many different schemas, whatever their size: those whose text's hash is smallest."""
    texts = {json.dumps(schema): schema for schema in found}
    return [texts[text] for text in sorted(texts, key=_hash)[:count]]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
