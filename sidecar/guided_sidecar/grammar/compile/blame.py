"""What a library's refusal is about: its code, and the path of the keyword that the library's words name.

A schema that was read is valid: what a library does not take of it, the library cannot do. Of a regex that is
so if Python or another library reads it; of other grammars the library's words tell, and the other one.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import CONSTRAINTS
from guided_sidecar.grammar.compile import heard
from guided_sidecar.grammar.compile.proof_walk import Fault
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.schema import patterns
from guided_sidecar.grammar.schema.faults import fault
from guided_sidecar.grammar.schema.origins import PARTLY, Form

# What a library says of keywords that it does not name, or of which it names others.
_MEANT: Final = {
    "min/maxProperties": "minProperties maxProperties",
    "empty range": "minimum maximum exclusiveMinimum exclusiveMaximum",
}
# Each library's words for a schema that nothing meets, and for what it does not do.
_EMPTY: Final = ("nsatisfiable", "must not be empty")
_LIMIT: Final = ("support", "Unimplemented", "ignored")
_WIDE: Final = frozenset(["anyOf", "enum", "patternProperties", "properties"])
_WORD: Final = re.compile(r"[A-Za-z$]+")

Refuses = Callable[[Kind, str], bool]


def explained(
    grammar: Grammar, backend: Backend, said: str, refuses: Refuses, is_read: Callable[[], bool]
) -> GuidedError:
    """Turn a library's refusal into our error.

    Parameters
    ----------
    said
        The library's words.
    refuses
        Whether the library refuses another text.
    is_read
        Whether another library reads the grammar: then it is not broken.
    """
    reason = f"{backend}: {heard.plain(said)}"
    for made in grammar.schemas:
        text = json.dumps(made.schema)
        if isinstance(made.schema, dict) and (grammar.kind == "json" or refuses("json", text)):
            path = _path(made, said)
            if not any(words in said for words in _EMPTY):
                return fault(path, reason, ErrorCode.GRAMMAR_UNSUPPORTED)
            if refuses("json", text):  # and not only with its objects closed
                return fault(path, "no value meets the schema", ErrorCode.GRAMMAR_DEAD_END)
            return fault(path, PARTLY, ErrorCode.GRAMMAR_UNSUPPORTED)
    is_limit = grammar.value is None or any(word in said for word in _LIMIT)
    if grammar.kind == "regex" and grammar.value is not None:
        broken = patterns.broken(grammar.value)
        is_limit = broken is None or is_read()
        reason = reason if is_limit else f"the regex is broken: {broken}"
    elif grammar.kind == "grammar":
        is_limit = is_limit or is_read()
    code = ErrorCode.GRAMMAR_UNSUPPORTED if is_limit else ErrorCode.GRAMMAR_INVALID
    if grammar.kind == "structural_tag" and grammar.value is not None:
        return fault("$" if "structures" in grammar.value else "$.format", reason, code)
    return GuidedError(code, reason)


def proven(grammar: Grammar, found: Fault) -> GuidedError:
    """Turn what a walk found into our error."""
    path = found.path or ("$" if grammar.schemas else None)
    message = found.message
    if path == "$" and heard.MANY in message:
        path = _widest(grammar)
        message = f"{path}: {message}"
    return GuidedError(found.code, message, path=path)


def _widest(grammar: Grammar) -> str:
    """Return the path of the keyword that gives the most alternatives in a grammar's schemas."""
    found = [
        (len(place.schema[keyword]), made.at(place.at(keyword)))
        for made in grammar.schemas
        for place in subschemas.walk(made.schema)
        for keyword in _WIDE & place.schema.keys()
    ]
    return max(found, default=(0, "$"))[1]


def _path(made: Form, said: str) -> str:
    """Return the path of the keyword that a library's words are about, of the schema if they name none."""
    said = next((keywords for phrase, keywords in _MEANT.items() if phrase in said), said)
    words = CONSTRAINTS.intersection(_WORD.findall(said)) - {"type"}
    is_empty = any(one in said for one in _EMPTY)

    def weight(keyword: str, value: Any) -> int:
        if is_empty and value == []:
            return 1 << 30
        if keyword == "pattern" and value in said:
            return 2 + len(value)
        if keyword == "patternProperties" and any(name in said for name in value):
            return 2
        return int(keyword in words)

    only = [keyword for keyword in made.schema if keyword in CONSTRAINTS]
    best, found = 0, subschemas.step("$", only[0]) if len(only) == 1 else "$"
    for place in subschemas.walk(made.schema):
        for keyword, value in place.schema.items():
            if (more := weight(keyword, value)) > best:
                best, found = more, place.at(keyword)
    return made.at(found)
