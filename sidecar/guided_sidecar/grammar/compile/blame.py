"""What a library's refusal is about: its code, and the path of the keyword that the library's words name.

A schema that was read is valid: what a library does not take of it, the library cannot do. Of a regex that is
so if Python reads it; of other grammars the library's words tell.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import CONSTRAINTS
from guided_sidecar.grammar.compile import library_words
from guided_sidecar.grammar.compile.proof_walk import Fault
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.schema import patterns
from guided_sidecar.grammar.schema.faults import fault
from guided_sidecar.grammar.schema.origins import PARTLY, Form

# Each library's words for a schema that nothing meets.
# What a library says of keywords that it does not name, or of which it names others.
_MEANT: Final = {
    "min/maxProperties": "minProperties maxProperties",
    "empty range": "minimum maximum exclusiveMinimum exclusiveMaximum",
}
_EMPTY: Final = ("nsatisfiable", "must not be empty")
_WIDE: Final = frozenset(["anyOf", "enum", "patternProperties", "properties"])
_MOST: Final = 64  # alternatives, of which a few such keywords are too many
_WORD: Final = re.compile(r"[A-Za-z$]+")
_MANY: Final = (
    "some hundreds of alternatives may be open at one place, and it has more: require the names that always "
    "come, or split it into parts of their own"
)

Refuses = Callable[[Any, bool], bool]


def explained(
    grammar: Grammar, backend: Backend, said: str, refuses: Refuses, is_read: Callable[[], bool]
) -> GuidedError:
    """Turn a library's refusal into our error.

    Parameters
    ----------
    said
        The library's words.
    refuses
        Whether the library refuses one of the grammar's schemas alone: in its normal form, closed or not.
    is_read
        Whether another library reads the text: then it is not broken.
    """
    reason = f"{backend}: {library_words.plain(said)}"
    for made in grammar.schemas:
        if isinstance(made.schema, dict) and (grammar.kind == "json" or refuses(made.schema, True)):
            path = _path(made, said)
            if not any(words in said for words in _EMPTY):
                return fault(path, reason, ErrorCode.GRAMMAR_UNSUPPORTED)
            if refuses(made.schema, False):
                return fault(path, "no value meets the schema", ErrorCode.GRAMMAR_DEAD_END)
            return fault(path, PARTLY, ErrorCode.GRAMMAR_UNSUPPORTED)
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
        path = _widest(grammar)
        return GuidedError(found.code, f"{path}: {_MANY}" if path else found.message, path=path)
    return GuidedError(found.code, found.message, path=found.path or ("$" if grammar.schemas else None))


def _path(made: Form, said: str) -> str:
    """Return the path of the keyword that a library's words are about, of the schema if they name none."""
    said = next((keywords for phrase, keywords in _MEANT.items() if phrase in said), said)
    words = CONSTRAINTS.intersection(_WORD.findall(said)) - {"type"}
    is_empty = any(one in said for one in _EMPTY)
    best, found = 0, "$"
    for place in subschemas.walk(made.schema):
        for keyword, value in place.schema.items():
            weight = 1 if keyword in words else 0
            if keyword == "pattern" and value in said:
                weight = 2 + len(value)
            if keyword == "patternProperties" and any(name in said for name in value):
                weight = 2
            if is_empty and value == []:
                weight = 1 << 30
            if weight > best:
                best, found = weight, place.at(keyword)
    only = [keyword for keyword in made.schema if keyword in CONSTRAINTS]
    if not best and len(only) == 1:
        found = subschemas.step("$", only[0])
    return made.at(found)


def _widest(grammar: Grammar) -> str | None:
    """Return the path of the keyword that gives the most alternatives in a grammar's schemas."""
    found = [
        (len(place.schema[keyword]), inner.at(place.at(keyword)))
        for inner in grammar.schemas
        for place in subschemas.walk(inner.schema)
        for keyword in _WIDE & place.schema.keys()
        if len(place.schema[keyword]) > _MOST
    ]
    return max(found)[1] if found else "$" if grammar.schemas else None
