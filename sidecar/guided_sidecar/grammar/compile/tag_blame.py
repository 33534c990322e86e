"""Which part of a structural tag a library refuses: the innermost it refuses alone, and the key it names."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import tag_words

Refuses = Callable[[Any], bool]
Part = tuple[JsonPath, Any, Any]  # its path, itself, and a tag with nothing else

_WORD: Final = re.compile(r"\w+")
# What a part is about where the library names none of its keys.
_OTHERWISE: Final = {
    "exclude_token": "exclude_tokens",
    "grammar": "grammar",
    "regex": "pattern",
    "token": "token",
    "token_triggered_tags": "trigger_tokens",
}


class SpentError(Exception):
    """Enough was tried."""


def place(tag: Any, said: str, refuses: Refuses) -> str:
    """Return the JSONPath of what a library refuses in a tag.

    Parameters
    ----------
    said
        The library's words.
    refuses
        Whether the library refuses another tag, too; raises SpentError where no more may be tried.
    """
    is_old = "structures" in tag
    path, part = (ROOT, tag) if is_old else (JsonPath(ROOT, "format"), tag.get("format"))
    with contextlib.suppress(SpentError):
        while found := next((one for one in _inner(path, part, said) if refuses(one[2])), None):
            path, part, _ = found
    key = _key(part, said)
    return str(path if key is None else JsonPath(path, key))


def _inner(path: JsonPath, part: Any, said: str) -> Iterator[Part]:
    """Yield the formats right below one; then the tags of a list, with what the list says of each."""
    if not isinstance(part, dict):
        return
    for key in ("content", "elements", "tags"):
        for way, one in _below(JsonPath(path, key), part.get(key)):
            yield way, one, _alone({"type": "tag", **one} if key == "tags" else one)
    rules = part.get("rules")
    for number, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, list) and len(rule) == len(("text", "format")):
            yield JsonPath(JsonPath(JsonPath(path, "rules"), number), 1), rule[1], _alone(rule[1])
    for key in ("tags", "structures"):
        if _key(part, said) in {None, key}:
            for way, one in _below(JsonPath(path, key), part.get(key)):
                whole = {**part, key: [one]}
                yield way, one, whole if key == "structures" else _alone(whole)


def _below(path: JsonPath, value: Any) -> Iterator[tuple[JsonPath, Any]]:
    if isinstance(value, dict):
        yield path, value
    elif isinstance(value, list):
        yield from (
            (JsonPath(path, number), one) for number, one in enumerate(value) if isinstance(one, dict)
        )


def _alone(part: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": part}


def _key(part: Any, said: str) -> str | None:
    """Return the key of a part that a library names last, else the one that the part is about."""
    if not isinstance(part, dict):
        return None
    kind = "triggered_tags" if "structures" in part else part.get("type", "tag")
    known = tag_words.formats().get(kind)
    if known is None:
        return "type"
    named = [word for word in _WORD.findall(said) if word in known and word != "type"]
    if "structures" in part:
        named = ["structures" if word == "tags" else word for word in named]
    return named[-1] if named else _OTHERWISE.get(kind)
