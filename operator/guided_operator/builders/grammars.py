"""Named grammars: the texts of many ConfigMaps, in the one that a model's pods mount."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kubernetes.aio import client as k8s

from guided_contract import grammar_files
from guided_operator.api import GuidedModel
from guided_operator.builders.labels import metadata

# ConfigMaps by name; None: there is no such ConfigMap, or a text that is too large beside the others.
Sources = Mapping[str, Mapping[str, str | None] | None]
NO_SOURCES: Final[Sources] = {}
_TOO_LARGE: Final = "too large: all grammars of a model together may have at most 1 MiB"


@dataclass(frozen=True, slots=True)
class Grammars:
    """What the pods mount. `faults`: why a grammar's text is not there or not the newest, by its name."""

    data: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)


def map_name(model: str) -> str:
    """Return the name of the ConfigMap that holds a model's grammars; no revision's is called so."""
    return f"{model}-grammars"


def merge(gm: GuidedModel, sources: Sources, before: Mapping[str, str]) -> Grammars:
    """Return the files of all named grammars.

    A grammar whose text is missing or too large keeps its previous text; if it had none, its file says why.

    Parameters
    ----------
    sources
        Data of the ConfigMaps in the model's namespace, by name.
    before
        The files that the pods have now: text by file name.
    """
    data: dict[str, str] = {}
    faults: dict[str, str] = {}
    size = 0
    for grammar in gm.spec.guided_decoding.grammars:
        file = grammar_files.file_name(grammar.name, grammar.kind)
        reference = grammar.config_map_key_ref
        text, fault = _text(sources, reference.name, reference.key)
        if text is not None and size + _size(file, text) > grammar_files.MAX_BYTES:
            text, fault = None, _TOO_LARGE
        if fault:
            faults[grammar.name] = fault
            text = before.get(file)
        if text is None or size + _size(file, text) > grammar_files.MAX_BYTES:
            file, text = grammar_files.file_name(grammar.name, grammar_files.ABSENT), fault
        data[file] = text
        size += _size(file, text)
    return Grammars(data, faults)


def config_map(gm: GuidedModel, data: Mapping[str, str]) -> k8s.V1ConfigMap:
    """Return the ConfigMap that the pods mount, `data` by file name; it exists even without grammars."""
    return k8s.V1ConfigMap(
        api_version="v1", kind="ConfigMap", metadata=metadata(gm, map_name(gm.name)), data=dict(data)
    )


def _text(sources: Sources, name: str, key: str) -> tuple[str | None, str]:
    found = sources.get(name)
    if found is None:
        return None, f"there is no ConfigMap {name}"
    if key not in found:
        return None, f"ConfigMap {name} has no key {key}"
    text = found[key]
    return text, "" if text is not None else _TOO_LARGE


def _size(file: str, text: str) -> int:
    return len(file.encode()) + len(text.encode())
