"""What a library's refusal is about: its code, and the path of the keyword, found by compiling parts alone.

A schema that was read is valid: what a library does not take of it, the library cannot do. Of a regex that is
so if Python reads it; of other grammars the library's words tell.
"""

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath, Place
from guided_sidecar.grammar.compile import library_words
from guided_sidecar.grammar.compile.routing import Grammar
from guided_sidecar.grammar.schema import patterns
from guided_sidecar.grammar.schema.faults import fault

_MOST_TRIES: Final = 48
_BUDGET_S: Final = 0.5
_DEFINITIONS: Final = ("$defs", "definitions")
# Each library's words for a schema that nothing meets.
_EMPTY: Final = ("nsatisfiable", "must not be empty")
_WORD: Final = re.compile(r"[A-Za-z$]+")

Schema = dict[str, Any]
Refuses = Callable[[Any], bool]


def explained(grammar: Grammar, backend: Backend, said: str, refuses: Refuses) -> GuidedError:
    """Turn a library's refusal into our error.

    Parameters
    ----------
    said
        The library's words.
    refuses
        Whether the library refuses a JSON schema in its normal form, too.
    """
    found = _place(grammar, said, refuses)
    if found is not None and any(words in said for words in _EMPTY):
        return fault(found, "no value meets the schema", ErrorCode.GRAMMAR_DEAD_END)
    reason = f"{backend}: {library_words.plain(said)}"
    if found is not None:
        return fault(found, reason, ErrorCode.GRAMMAR_UNSUPPORTED)
    is_limit = "support" in said or "Unimplemented" in said or "ignored" in said
    if grammar.value is None:  # what was broken was refused when it was read
        is_limit = True
    elif grammar.kind == "regex":
        broken = patterns.broken(grammar.value)
        is_limit = broken is None
        reason = f"the regex is broken: {broken}" if broken else reason
    return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED if is_limit else ErrorCode.GRAMMAR_INVALID, reason)


def _place(grammar: Grammar, said: str, refuses: Refuses) -> str | None:
    """Return the path of what is refused in the grammar's text; None: no schema is."""
    search = _Search(refuses, set(_WORD.findall(said)))
    for schema in grammar.schemas:
        if not isinstance(schema.form, dict):
            continue
        if grammar.kind != "json" and not search.refuses(schema.form):
            continue
        place = search.place(schema.form)
        keyword = search.keyword(schema.form, place)
        return schema.at(place.at(keyword) if keyword else place.path)
    return None


class _SpentError(Exception):
    """Enough was tried."""


class _Search:
    """Looks for the smallest part of a schema that a library refuses, for so many tries and so long."""

    def __init__(self, refuses: Refuses, words: set[str]) -> None:
        self._refuses = refuses
        self._words = words
        self._left = _MOST_TRIES
        self._until_s = time.monotonic() + _BUDGET_S

    def refuses(self, form: Any) -> bool:
        """Return whether a schema alone is refused; raises _SpentError."""
        self._left -= 1
        if self._left < 0 or time.monotonic() > self._until_s:
            raise _SpentError
        return self._refuses(form)

    def place(self, form: Schema) -> Place:
        """Return the innermost schema that is refused, the whole one where none is alone."""
        place, seen = Place(ROOT, form), {id(form)}
        with contextlib.suppress(_SpentError):
            while (inner := self._inner(form, place)) is not None and id(inner.schema) not in seen:
                seen.add(id(inner.schema))
                place = inner
        return place

    def keyword(self, form: Schema, place: Place) -> str:
        """Return the keyword of a place that is refused: one that was named, or without which it is taken."""
        # Without a type others may be ignored, and so taken.
        keywords = sorted((key for key in place.schema if key not in _DEFINITIONS), key="type".__eq__)
        named = [key for key in keywords if key in self._words]
        with contextlib.suppress(_SpentError):
            for key in named if len(named) > 1 else keywords if not named else ():
                rest = {name: value for name, value in place.schema.items() if name != key}
                if not self.refuses(_with_definitions(form, rest)):
                    return key
        return named[0] if named else keywords[0] if len(keywords) == 1 else ""

    def _inner(self, form: Schema, place: Place) -> Place | None:
        """Return what is refused of the schemas below one, or that it refers to; None: none is alone."""
        if (reference := place.schema.get("$ref")) is not None:
            target = subschemas.referred(form, reference)
            way = ROOT
            for name in subschemas.names(reference):
                way = JsonPath(way, name)
            if isinstance(target, dict) and self.refuses(_with_definitions(form, target)):
                return Place(way, target)
        below = [one for one in subschemas.inner(place) if not _is_defined(one)]
        if not below or not self.refuses(_all_of(form, below)):
            return None
        while len(below) > 1:
            half = below[: len(below) // 2]
            below = half if self.refuses(_all_of(form, half)) else below[len(below) // 2 :]
        return below[0]


def _is_defined(place: Place) -> bool:
    return place.way.before is not None and place.way.before.last in _DEFINITIONS


def _all_of(form: Schema, places: Sequence[Place]) -> Schema:
    """Return a schema of arrays that hold one value of each."""
    items = [place.schema for place in places]
    if len(items) == 1:
        return _with_definitions(form, items[0])
    whole = {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    return _with_definitions(form, whole)


def _with_definitions(form: Schema, part: Schema) -> Schema:
    """Return a part that finds what it refers to; what refers to the whole schema takes anything."""
    if part is form:
        return part
    whole: Schema = {key: form[key] for key in _DEFINITIONS if key in form}
    whole.update(part)
    return {key: _without_root(value) for key, value in whole.items()}


def _without_root(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_root(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {} if value.get("$ref") == "#" else {key: _without_root(one) for key, one in value.items()}
