"""Schemas that others wrote, out of the archives in which they publish them: npm's, PyPI's, or JSON files.

Each component of an OpenAPI document and definition of a JSON Schema stands alone, with what it refers to.
"""

import hashlib
import json
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from guided_grammar.json_schema import subschemas

_MOST: Final = 250  # of one archive, chosen by hash: some hold a document in a hundred versions
_OWN: Final = "json-schema.org"  # other dialects' metaschemas are no JSON Schema
_KEPT: Final = (("components", "schemas"), ("definitions",), ("$defs",))


def drawn(folder: Path) -> list[Any]:
    """Return all schemas of the files in a folder, each once; none that needs another file."""
    found: dict[str, Any] = {}
    for file in sorted(folder.iterdir()):
        made = (one for text in _texts(file) for one in _schemas(text) if _is_whole(one))
        written = {json.dumps(one, sort_keys=True): one for one in made}
        chosen = sorted(written, key=lambda text: hashlib.sha256(text.encode()).digest())[:_MOST]
        found |= {text: written[text] for text in chosen}
    return list(found.values())


def _texts(file: Path) -> Iterator[bytes]:
    """Yield the JSON files within an archive, or the file itself."""
    if file.suffix == ".tgz":
        with tarfile.open(file) as archive:
            for member in archive:
                if (
                    member.isfile()
                    and member.name.endswith(".json")
                    and (held := archive.extractfile(member))
                ):
                    yield held.read()
    elif file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield archive.read(name)
    elif file.suffix == ".json":
        yield file.read_bytes()


def _schemas(text: bytes) -> Iterator[Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return
    if not isinstance(document, dict):
        return
    dialect = document.get("$schema", "")
    is_schema = isinstance(dialect, str) and _OWN in dialect
    if not is_schema and "openapi" not in document:
        return
    if is_schema:
        yield document
    for way in _KEPT:
        for name, part in _at(document, way).items():
            if isinstance(part, dict):
                yield _alone(document, [*way, name], dialect if is_schema else "")


def _is_whole(schema: Any) -> bool:
    kept = [part for way in _KEPT for part in _at(schema, way).values()]
    return all(
        str(below.get("$ref", "#")).startswith("#")
        for part in (schema, *kept)
        for below in subschemas.within(part)
    )


def _at(document: Any, way: Iterable[str]) -> Any:
    for step in way:
        document = document.get(step, {}) if isinstance(document, dict) else {}
    return document if isinstance(document, dict) else {}


def _alone(document: Any, way: list[str], dialect: str) -> Any:
    """Return a schema that refers to one part of a document, with all that this refers to."""
    schema: Any = {"$schema": dialect} if dialect else {}
    waiting, done = [way], set()
    while waiting:
        path = waiting.pop()
        if tuple(path) in done:
            continue
        done.add(tuple(path))
        part = _at(document, path)
        into = schema
        for step in path[:-1]:
            into = into.setdefault(step, {})
        into[path[-1]] = part
        for below in subschemas.within(part):
            target = below.get("$ref")
            if isinstance(target, str) and target.startswith("#/"):
                steps = [step.replace("~1", "/").replace("~0", "~") for step in target[2:].split("/")]
                waiting += [steps[: len(kept) + 1] for kept in _KEPT if steps[: len(kept)] == [*kept]]
    return {**schema, "$ref": "#/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in way)}
