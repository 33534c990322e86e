"""The keys of a structural tag that xgrammar ignores: all that it does not know, and some beside others."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import faults

# As xgrammar 0.2.8 has them (xgrammar/structural_tag.py), by type; a contract test compares them.
FORMATS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(["type", *words.split()])
    for name, words in {
        "any_text": "excludes max_tokens max_chars",
        "any_tokens": "exclude_tokens max_tokens",
        "const_string": "value",
        "dispatch": "rules loop excludes",
        "exclude_token": "exclude_tokens",
        "grammar": "grammar",
        "json_schema": "json_schema style any_order max_whitespace_cnt excludes",
        "optional": "content",
        "or": "elements",
        "plus": "content",
        "qwen_xml_parameter": "json_schema",
        "regex": "pattern",
        "repeat": "min max content",
        "sequence": "elements",
        "star": "content",
        "structural_tag": "format",
        "tag": "begin content end",
        "tags_with_separator": "tags separator at_least_one stop_after_first",
        "token": "token",
        "token_dispatch": "rules loop exclude_tokens",
        "token_triggered_tags": "trigger_tokens tags exclude_tokens at_least_one stop_after_first",
        "triggered_tags": "triggers tags at_least_one stop_after_first excludes",
    }.items()
}
_OLD: Final = frozenset(["type", "structures", "triggers"])
_STRUCTURE: Final = frozenset(["begin", "schema", "end"])


def check(tag: dict[str, Any]) -> None:
    """Refuse keys that nobody reads, or that are not enforced; types and values are the library's to judge.

    Raises
    ------
    GuidedError
        grammar_unsupported, with the path of each of up to ten.
    """
    faults.refuse(_of_old(tag) if "structures" in tag else _of_new({"type": "structural_tag", **tag}, ROOT))


def _of_old(tag: dict[str, Any]) -> Iterator[GuidedError]:
    yield from _unknown(tag, _OLD, ROOT)
    for number, structure in enumerate(tag["structures"]):
        yield from _unknown(structure, _STRUCTURE, JsonPath(JsonPath(ROOT, "structures"), number))


def _of_new(value: Any, path: JsonPath) -> Iterator[GuidedError]:
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _of_new(one, JsonPath(path, number))
        return
    if not isinstance(value, dict):
        return
    named = value.get("type", "tag")  # which a tag among others may leave out
    known = FORMATS.get(named) if isinstance(named, str) else None
    if known is None:
        return
    yield from _unknown(value, known, path)
    if named == "json_schema":
        yield from _unenforced(value, path)
    for key in ("format", "content", "elements", "tags", "rules", "begin", "end"):
        if key in known:
            yield from _of_new(value.get(key), JsonPath(path, key))


def _unknown(value: dict[str, Any], known: frozenset[str], path: JsonPath) -> Iterator[GuidedError]:
    for key in (key for key in value if key not in known):
        close = difflib.get_close_matches(key[:100], sorted(known), 1)
        meant = f"did you mean {close[0]}?" if close else f"the keys are {', '.join(sorted(known))}"
        reason = f"no such key; {meant}"
        yield faults.fault(str(JsonPath(path, key)), reason, ErrorCode.GRAMMAR_UNSUPPORTED)


def _unenforced(value: dict[str, Any], path: JsonPath) -> Iterator[GuidedError]:
    """Yield what xgrammar 0.2.8 takes and does not hold: of any order it counts the entries alone."""
    parts = list(subschemas.within(value.get("json_schema")))
    for key, beside in (("any_order", {"required"}), ("excludes", {"format", "pattern"})):
        found = sorted(beside & set().union(*parts)) if parts and value.get(key) else []
        if found:
            reason = f"it is not enforced beside {found[0]}"
            yield faults.fault(str(JsonPath(path, key)), reason, ErrorCode.GRAMMAR_UNSUPPORTED)
