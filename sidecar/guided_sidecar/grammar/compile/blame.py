"""What a library's refusal is about: its code, and the path of the keyword, found by compiling parts alone.

A schema that was read is valid: what a library does not take of it, the library cannot do. Of a regex that is
so if Python reads it; of other grammars the library's words tell.
"""

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import DEFINITIONS
from guided_grammar.json_schema.subschemas import ROOT, Place
from guided_sidecar.grammar.compile import library_words, routing
from guided_sidecar.grammar.compile.proof_faults import Fault
from guided_sidecar.grammar.compile.routing import Grammar
from guided_sidecar.grammar.schema import patterns
from guided_sidecar.grammar.schema.faults import fault
from guided_sidecar.grammar.schema.origins import PARTLY
from guided_sidecar.grammar.schema.writing import TYPES

_MOST_TRIES: Final = 48
_BUDGET_S: Final = 0.5
# Each library's words for a schema that nothing meets.
_EMPTY: Final = ("nsatisfiable", "must not be empty")
_WORD: Final = re.compile(r"[A-Za-z$]+")
_MANY: Final = (
    "some hundreds of alternatives may be open at one place, and it has more: require the names that always "
    "come, or split it into parts of their own"
)

Schema = dict[str, Any]
Refuses = Callable[[Any, bool], bool]


class SpentError(Exception):
    """Enough was tried."""


def explained(
    grammar: Grammar, backend: Backend, said: str, refuses: Refuses, is_read: Callable[[], bool]
) -> GuidedError:
    """Turn a library's refusal into our error.

    Parameters
    ----------
    said
        The library's words.
    refuses
        Whether the library refuses a part, too: a JSON schema in its normal form, closed or not.
    is_read
        Whether another library reads the text: then it is not broken.
    """
    search = _Search(refuses, set(_WORD.findall(said)))
    found = _place(grammar, search)
    reason = f"{backend}: {library_words.plain(said)}"
    if found is not None and any(words in said for words in _EMPTY):
        if not found.is_met:
            return fault(found.path, "no value meets the schema", ErrorCode.GRAMMAR_DEAD_END)
        reason = PARTLY
    if found is not None:
        return fault(found.path, reason, ErrorCode.GRAMMAR_UNSUPPORTED)
    is_limit = "support" in said or "Unimplemented" in said or "ignored" in said
    if grammar.value is None:  # what was broken was refused when it was read
        is_limit = True
    elif grammar.kind == "regex":
        broken = patterns.broken(grammar.value)
        is_limit = broken is None or is_read()
        reason = reason if is_limit else f"the regex is broken: {broken}"
    elif grammar.kind == "grammar":
        is_limit = is_limit or is_read()
    code = ErrorCode.GRAMMAR_UNSUPPORTED if is_limit else ErrorCode.GRAMMAR_INVALID
    if grammar.kind == "structural_tag" and grammar.value is not None:
        path = "$" if "structures" in grammar.value else "$.format"
        return fault(path, reason, code)
    return GuidedError(code, reason)


def proven(grammar: Grammar, found: Fault) -> GuidedError:
    """Turn what a walk found into our error."""
    if found.path is None and library_words.ALTERNATIVES in found.message:
        path = routing.widest(grammar)
        return GuidedError(found.code, f"{path}: {_MANY}" if path else found.message, path=path)
    return GuidedError(found.code, found.message, path=found.path or ("$" if grammar.schemas else None))


class _Refused(NamedTuple):
    """The path in the grammar's text of what is refused, and whether less of it was asked than it takes."""

    path: str
    is_met: bool


def _place(grammar: Grammar, search: "_Search") -> _Refused | None:
    """Return what is refused in the grammar's text; None: no schema is."""
    for made in grammar.schemas:
        form = made.schema
        if not isinstance(form, dict) or (grammar.kind != "json" and not search.refuses(form)):
            continue
        place = search.place(form)
        keyword = search.keyword(form, place)
        path = made.at(place.at(keyword) if keyword else place.path)
        return _Refused(path, search.is_met(form, place))
    return None


class _Search:
    """Looks for the smallest part of a schema that a library refuses, for so many tries and so long."""

    def __init__(self, refuses: Refuses, words: set[str]) -> None:
        self._refuses = refuses
        self._words = words
        self._left = _MOST_TRIES
        self._until_s = time.monotonic() + _BUDGET_S

    def refuses(self, form: Any) -> bool:
        """Return whether a schema alone is refused; raises SpentError."""
        return self._tried(form)

    def _tried(self, form: Any, *, is_closed: bool = True) -> bool:
        self._left -= 1
        if self._left < 0 or time.monotonic() > self._until_s:
            raise SpentError
        return self._refuses(form, is_closed)

    def place(self, form: Schema) -> Place:
        """Return the innermost schema that is refused, the whole one where none is alone."""
        place, seen = Place(ROOT, form), {id(form)}
        with contextlib.suppress(SpentError):
            while (inner := self._inner(form, place)) is not None and id(inner.schema) not in seen:
                seen.add(id(inner.schema))
                place = inner
        return place

    def keyword(self, form: Schema, place: Place) -> str:
        """Return the keyword of a place that is refused: one that was named, or without which it is taken."""
        # Without a type others may be ignored, and so taken.
        keywords = sorted((key for key in place.schema if key not in DEFINITIONS), key="type".__eq__)
        named = [key for key in keywords if key in self._words]
        with contextlib.suppress(SpentError):
            for key in named if len(named) > 1 else keywords if not named else ():
                rest = {name: value for name, value in place.schema.items() if name != key}
                if not self.refuses(_with_definitions(form, rest)):
                    return key
        return named[0] if named else keywords[0] if len(keywords) == 1 else ""

    def is_met(self, form: Schema, place: Place) -> bool:
        """Return whether a place that is refused is taken of one type alone, or with further properties.

        True also where that is not told.
        """
        types = place.types() or TYPES
        parts = [{**place.schema, "type": kind} for kind in sorted(types)]
        try:
            if len(parts) > 1 and not all(self.refuses(_with_definitions(form, part)) for part in parts):
                return True
            return not self._tried(form, is_closed=False)
        except SpentError:
            return True

    def _inner(self, form: Schema, place: Place) -> Place | None:
        """Return what is refused of the schemas below one, or that it refers to; None: none is alone."""
        if (reference := place.schema.get("$ref")) is not None:
            target = subschemas.referred(form, reference)
            way = subschemas.way(form, reference)
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
    return place.way.before is not None and place.way.before.last in DEFINITIONS


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
    whole: Schema = {key: form[key] for key in DEFINITIONS if key in form}
    whole.update(part)
    return {key: _without_root(value) for key, value in whole.items()}


def _without_root(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_root(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {} if value.get("$ref") == "#" else {key: _without_root(one) for key, one in value.items()}
