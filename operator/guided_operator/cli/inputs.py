"""Manifests as people keep them: files, folders, stdin, many documents each, and what stands beside them."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from guided_contract import names
from guided_operator.api import GuidedModel, ManifestError, Problem, parse
from guided_operator.api.manifest import ConfigMap, config_map, documents, is_config_map

STDIN: Final = "-"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


class Located(NamedTuple):
    """A GuidedModel, and where it stands, for messages."""

    where: str
    model: GuidedModel


class Fault(NamedTuple):
    """What is wrong, and where."""

    where: str
    problem: Problem

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.where}: {self.problem}"


@dataclass(slots=True)
class Inputs:
    """All that was read. What is neither a GuidedModel nor a ConfigMap is nobody's concern here."""

    models: list[Located] = field(default_factory=list)
    config_maps: list[ConfigMap] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def sources(self, model: GuidedModel) -> dict[str, Mapping[str, str]]:
        """Return the data of the given ConfigMaps that the model can refer to, by name."""
        here = {"", model.namespace}
        return {each.name: each.data for each in self.config_maps if each.namespace in here}

    def judged(self, *judges: Callable[[GuidedModel], Iterable[Problem]]) -> list[Fault]:
        """Return all that is wrong with what was read, and by these with the models."""
        return self.faults + [
            Fault(where, problem)
            for where, model in self.models
            for judge in judges
            for problem in judge(model)
        ]


def _text_of(file: str) -> str:
    """Return what a file, or stdin, holds: UTF-8, whatever the locale.

    Raises
    ------
    ManifestError
        It cannot be read.
    """
    if file == STDIN and sys.stdin is None:
        raise ManifestError([Problem("manifest", "cannot be read: stdin is closed")])
    try:
        return (sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()).decode()
    except OSError as error:
        raise ManifestError([Problem("manifest", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ManifestError([Problem("manifest", f"is not UTF-8 text: {error}")]) from error


def gather(files: Iterable[str]) -> Inputs:
    """Read everything; a fault in one document does not hide those of others."""
    found = Inputs()
    for file in files:
        before = len(found.models) + len(found.faults)
        for each in _files(file):
            _read(each, found)
        if len(found.models) + len(found.faults) == before:
            found.faults.append(Fault(file, Problem("manifest", "holds no GuidedModel")))
    return found


def _files(file: str) -> Iterator[str]:
    if file == STDIN or not os.path.isdir(file):  # noqa: PTH112 - Path's raises where a name is too long
        yield file
        return
    for each in sorted(Path(file).rglob("*")):
        is_hidden = any(part.startswith(".") for part in each.relative_to(file).parts)
        if each.suffix in _SUFFIXES and each.is_file() and not is_hidden:
            yield str(each)


def _read(file: str, found: Inputs) -> None:
    try:
        items = [item for document in documents(_text_of(file)) for item in _items(document)]
    except ManifestError as error:
        found.faults += [Fault(file, problem) for problem in error.problems]
        return
    is_alone = sum(map(_is_ours, items)) == 1
    for item in items:
        where = file if is_alone or not _is_ours(item) else f"{file} ({_name(item)})"
        try:
            if is_config_map(item):
                found.config_maps.append(config_map(item))
            elif _is_ours(item):
                found.models.append(Located(where, parse(item)))
        except ManifestError as error:
            found.faults += [Fault(where, problem) for problem in error.problems]


def _items(document: Any) -> Iterator[Any]:
    """Yield a document, or the items of a List as `kubectl get -o yaml` prints one."""
    if isinstance(document, Mapping) and document.get("kind") == "List":
        items = document.get("items") or ()
        if not isinstance(items, Sequence) or isinstance(items, str):
            raise ManifestError([Problem("items", "must be a list")])
        yield from items
    else:
        yield document


def _is_ours(item: Any) -> bool:
    """Say whether an object is meant to be a GuidedModel: a slip in version or kind does not hide it."""
    if not isinstance(item, Mapping):
        return False
    group = str(item.get("apiVersion", "")).partition("/")[0]
    return item.get("kind") == names.KIND or group == names.API_GROUP


def _name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name", "?")) if isinstance(metadata, Mapping) else "?"
