"""A tool whose calls would hold the mark by which their parser finds their end: it would cut them there.

Grammars of calls are right about such texts, and parsers, which look for the mark first, are wrong.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError

_MARK: Final = re.compile(r"<[^<>\s]+>")
# Unless they are names of properties, which hold schemas.
_NEVER_WRITTEN: Final = frozenset(("title", "description", "$comment", "examples", "default", "$ref", "$id"))


def cut_calls(tools: Sequence[Any], structural_tag: str) -> GuidedError | None:
    """Return why a call would be cut; None: all that is known of what it holds has no mark in it."""
    marks = {mark for end in _ends(json.loads(structural_tag)) for mark in _MARK.findall(end)}
    for number, tool in enumerate(tools) if marks else ():
        function = getattr(tool, "function", tool)  # a chat's tool has it inside, a Response's is it
        parameters = getattr(function, "parameters", None) or {}
        for text in _texts({"name": getattr(function, "name", ""), **parameters}):
            mark = next((mark for mark in marks if mark in text), None)
            if mark is not None:
                message = f"a call with {mark} in it cannot be read by this engine's tool parser: remove it"
                return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=f"tools[{number}]")
    return None


def _ends(value: Any) -> Iterator[str]:
    """Yield what ends the tags of a structural tag; schemas are not looked into."""
    if isinstance(value, dict):
        end = value.get("end") if value.get("type") == "tag" else None
        yield from (one for one in (end if isinstance(end, list) else [end]) if isinstance(one, str))
        for key, inner in value.items():
            if key != "json_schema":
                yield from _ends(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _ends(inner)


def _texts(value: Any) -> Iterator[str]:
    """Yield the names, values and patterns of a schema."""
    level = [value]
    while level:
        inner = level.pop()
        if isinstance(inner, str):
            yield inner
        elif isinstance(inner, dict):
            yield from inner
            level += [
                one
                for key, one in inner.items()
                if not (key in _NEVER_WRITTEN and isinstance(one, str | list))
            ]
        elif isinstance(inner, list):
            level += inner
