"""Named grammars: the texts of many ConfigMaps, in the one that a model's pods mount."""

from collections.abc import Mapping
from typing import Final

from guided_contract import grammar_files
from guided_operator.api import GuidedModel

# ConfigMaps by name; None: there is no such ConfigMap, or a text that is too large beside the others.
Sources = Mapping[str, Mapping[str, str | None] | None]
_TOO_LARGE: Final = "too large: all grammars of a model together may have at most 1 MiB"


def map_name(model: str) -> str:
    """Return the name of the ConfigMap that holds a model's grammars; no revision's is called so."""
    return f"{model}-grammars"


def merge(
    gm: GuidedModel, sources: Sources, before: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of all named grammars, and by a grammar's name why its text is missing or an old one.

    A grammar whose text is missing or too large keeps its previous text, of the files that pods had `before`;
    if it had none, its file says why.
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
    return data, faults


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
