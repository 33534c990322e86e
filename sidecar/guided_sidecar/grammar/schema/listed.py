"""A schema that lists its values, by enum or const, is those of them that meet what else it asks."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import jsonschema

Schema = dict[str, Any]

_LISTS: Final = frozenset(["const", "enum"])
_MOST_WORK: Final = 1 << 18  # characters of the schema, for each value
_LONGEST: Final = 64  # characters of a value that patterns are searched in; and
_MOST_REPEATS: Final = 4  # of the patterns, each of which Python may try at every length
_REPEAT: Final = re.compile(r"[*+]|(?<!\()\?|\{\d*,")
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")
# jsonschema is not asked about what stands elsewhere, formats, and what it reads by another draft or rounds.
_UNTOLD: Final = re.compile(r'"(?:\$\w*[rR]ef|format|dependencies)":|"multipleOf": (?!\d+[,}])')
_NO_INTEGERS: Final = re.compile(r"\d[.eE]")
_NEWEST: Final = 2020
_is_type: Final = jsonschema.Draft202012Validator.TYPE_CHECKER.is_type


def values(said: Schema) -> list[Any] | None:
    """Return the values that a schema lists; None: it lists none."""
    if "const" in said:
        return [said["const"]]
    listed: list[Any] | None = said.get("enum")
    return listed


def kept(said: Schema, draft: int) -> list[Any] | None:
    """Return the listed values that meet all of a schema; None: it lists none, or that is not told soon."""
    listed = values(said)
    if listed is None:
        return None
    if said.keys() - {"type"} in ({"const"}, {"enum"}):
        return [value for value in listed if "type" not in said or _is_of(said["type"], value)]
    return meeting(listed, said, draft)


def meeting(listed: Sequence[Any], said: Schema, draft: int) -> list[Any] | None:
    """Return those of some values that meet a schema; None: that is not told soon."""
    parts = (said[keyword] for keyword in said.keys() - _LISTS - {"required", "type"})
    if draft < _NEWEST and any(isinstance(part, dict | list) for part in parts):
        return None  # schemas in an older draft's words
    if len(json.dumps(said)) * len(listed) > _MOST_WORK:
        return None
    found = [is_valid(said, value) for value in listed]
    return None if None in found else [value for value, is_met in zip(listed, found, strict=True) if is_met]


def is_valid(said: Schema, value: Any) -> bool | None:
    """Return whether a value meets a schema; None: that cannot be told soon."""
    text = json.dumps(said)
    written = json.dumps(value)
    if _UNTOLD.search(text) or ('"pattern' in text and not _is_searched_soon(text, written)):
        return None
    if '"multipleOf"' in text and _NO_INTEGERS.search(written):
        return None
    try:
        return bool(jsonschema.Draft202012Validator(said).is_valid(value))
    except Exception:  # noqa: BLE001 - a regex that Python has not
        return None


def _is_searched_soon(schema: str, value: str) -> bool:
    """Return whether Python's regexes are few and simple, and mean the same as ECMA's in a value of ASCII."""
    if len(value) > _LONGEST or "\\" in value:
        return False
    return _REPEATED_GROUP.search(schema) is None and len(_REPEAT.findall(schema)) <= _MOST_REPEATS


def _is_of(types: str | list[str], value: Any) -> bool:
    return any(_is_type(value, name) for name in ([types] if isinstance(types, str) else types))
