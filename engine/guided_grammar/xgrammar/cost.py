r"""Which grammars are dear for xgrammar: llguidance is asked first for these, else xgrammar.

Measured with a vocabulary of 131,072 tokens (docs/decisions/0013). A mask costs either library microseconds;
inside a plain string ranks copy it. What differs is the first use, and repeated classes of letters.

========================================  ==========  =====================================================
the grammar                               first       because
========================================  ==========  =====================================================
a string with minLength or maxLength      guidance    xgrammar takes seconds to compile it where ranks
                                                      cannot count it, and its masks are 20 times dearer
more than 17 schemas, or 8 that are no    guidance    xgrammar takes ever longer, 600 ms for 50 KB, and from
flat object of required properties                    20 ms on writes an artefact, 100 ms per MB; llguidance
                                                      needs 1 ms per 2 KB, twice
an object with properties, and others     guidance    xgrammar compiles the names that the others may not
beside them                                           have for 240 ms and more, llguidance for 6
a format other than date, date-time,      guidance    xgrammar compiles it for 100 ms
time and uuid
a pattern or regex that repeats a class   guidance    a mask takes xgrammar 400 us, llguidance 8
of letters
anything else                             xgrammar    vLLM's own order; masks of enums, numbers and structure
                                                      take 2 to 5 us, llguidance's 6 to 20
========================================  ==========  =====================================================

EBNF and Lark stay with vLLM's order: the libraries read them as dialects of their own. So does a regex with
classes that they read otherwise (`\w`, `.`).
"""

import re
from typing import Any, Final

from guided_contract.wire import Kind
from guided_grammar.json_schema.keywords import has_lengths
from guided_grammar.json_schema.subschemas import ROOT, Place, walk

_MOST_SCHEMAS: Final = 17
_MOST_OF_OTHERS: Final = 8
_LONGEST_REGEX: Final = 512  # beyond, masks of many alternatives are dear for either
_CHEAP_FORMATS: Final = frozenset(["date", "date-time", "time", "uuid"])
_REPEATED_CLASS: Final = re.compile(r"\[([^\[\]]*)\][+*{]")
_LETTERS: Final = re.compile(r"[a-zA-Z]-[a-zA-Z]")
_READ_OTHERWISE: Final = re.compile(r"\\[wWdDsSbB]|(?<!\\)\.")


def is_dear(kind: Kind, value: Any) -> bool:
    """Return whether xgrammar takes much longer than llguidance, for the first use or for masks.

    Parameters
    ----------
    value
        The parsed schema for json, else the text.
    """
    if kind == "regex":
        return (
            len(value) <= _LONGEST_REGEX and _repeats_letters(value) and _READ_OTHERWISE.search(value) is None
        )
    return kind == "json" and _is_dear_schema(value)


def _repeats_letters(pattern: str) -> bool:
    """Return whether a regex repeats a class of letters."""
    return any(_LETTERS.search(found[1]) for found in _REPEATED_CLASS.finditer(pattern))


def _is_dear_schema(schema: Any) -> bool:
    schemas = 0
    most = _MOST_SCHEMAS if _is_flat(schema) else _MOST_OF_OTHERS
    for place in walk(schema):
        properties = place.schema.get("properties")
        if isinstance(properties, dict):
            schemas += sum(not isinstance(part, dict) for part in properties.values())
        schemas += 1
        if schemas > most or _has_costly_text(place) or _has_costly_names(place.schema):
            return True
    return False


def _is_flat(schema: Any) -> bool:
    """Return whether an object's properties are all required, and none is an object or an array."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or properties.keys() - set(schema.get("required", ())):
        return False
    parts = (Place(ROOT, part) for part in properties.values() if isinstance(part, dict))
    return all(part.types().isdisjoint(("array", "object")) for part in parts)


def _has_costly_names(schema: dict[str, Any]) -> bool:
    """Return whether an object has named properties and others, whose names must not be theirs."""
    others = schema.get("additionalProperties", False) is not False or schema.get("patternProperties")
    return bool(schema.get("properties") and others)


def _has_costly_text(place: Place) -> bool:
    if not place.allows("string"):
        return False
    schema = place.schema
    if has_lengths(schema) or ("format" in schema and schema["format"] not in _CHEAP_FORMATS):
        return True
    return "pattern" in schema and _repeats_letters(schema["pattern"])
