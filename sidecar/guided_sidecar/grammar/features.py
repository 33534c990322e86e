"""What xgrammar cannot enforce, and which backend `Auto` tries first.

xgrammar 0.2.8 accepts the schemas below and ignores the keyword (vLLM 0.32 knows of some of them,
`has_xgrammar_unsupported_json_features`; FACTS measured the others). llguidance refuses what it cannot
enforce, with a message, so it needs no table.

======================================  ======================  ===================================
the grammar                             `Auto` tries            because
======================================  ======================  ===================================
a keyword of _XGRAMMAR_IGNORES          guidance                xgrammar would not enforce it
a string with minLength or maxLength    guidance, xgrammar      xgrammar takes seconds to compile it
                                                                where ranks cannot count it, and fills
                                                                masks in strings 20 times slower
an object of more than 32 properties    guidance, xgrammar      xgrammar's artefact grows with the
                                                                square of their number
a repeat bound over 128 in a pattern    guidance                xgrammar's compiler raises
anything else                           xgrammar, guidance      vLLM's own order
======================================  ======================  ===================================
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from guided_contract.wire import Backend, Kind
from guided_sidecar.grammar.alternatives import are_apart, is_ruled_alone
from guided_sidecar.grammar.keywords import has_lengths
from guided_sidecar.grammar.subschemas import Place, in_tag, walk

_FORMATS: Final = frozenset(
    [
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "json-pointer",
        "relative-json-pointer",
        "time",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
    ]
)
_REPEAT: Final = re.compile(r"(?<!\\)\{(\d*),?(\d*)\}")
_REPEAT_LIMIT: Final = 128
_REPEAT_DIGITS: Final = len(str(_REPEAT_LIMIT))
# What a JSON string holds as an escape: quotes, backslashes, control characters, spaces that hold some.
_ESCAPED_IN_JSON: Final = re.compile(r'["\x00-\x1f]|\\[\\nrtfvscux0-7]')
_MANY_PROPERTIES: Final = 32  # measured: 50 make an artefact of 2 MB in 0.4 s, 200 one of 31 MB in 4 s


class Unsupported(NamedTuple):
    """A keyword that xgrammar does not enforce, where it stands, and why in words."""

    keyword: str
    path: str
    reason: str


class _Rule(NamedTuple):
    keyword: str
    applies: Callable[[Place], bool]
    reason: str = "xgrammar does not enforce it"


def xgrammar_ignores(schema: Any) -> Unsupported | None:
    """Return the first keyword that xgrammar would accept and ignore, or refuse late; None: there is none."""
    for place in walk(schema):
        for rule in _XGRAMMAR_IGNORES:
            if rule.keyword in place.schema and rule.applies(place):
                return Unsupported(rule.keyword, place.at(rule.keyword), rule.reason)
    return None


def find(schema: Any, keyword: str) -> str | None:
    """Return the path of a keyword's first use, or None."""
    return next((place.at(keyword) for place in walk(schema) if keyword in place.schema), None)


def order(kind: Kind, spec: Any) -> list[Backend]:
    """Return the backends that `Auto` tries, in order.

    Parameters
    ----------
    kind
        The grammar's kind.
    spec
        The parsed schema for json, else the text.
    """
    if kind == "regex" and _repeats_too_often(spec):
        return ["guidance"]
    if kind == "structural_tag" and any(map(xgrammar_ignores, _schemas_of_tag(spec))):
        return ["guidance"]
    if kind != "json":
        return ["xgrammar", "guidance"]
    if xgrammar_ignores(spec) is not None:
        return ["guidance"]
    if any(_is_costly(place) for place in walk(spec)):
        return ["guidance", "xgrammar"]
    return ["xgrammar", "guidance"]


def _schemas_of_tag(spec: str) -> Iterator[Any]:
    return (inner for _, inner in in_tag(json.loads(spec)))


def _is_costly(place: Place) -> bool:
    """Return whether xgrammar takes much longer to compile, or in strings to fill, than llguidance."""
    properties = place.schema.get("properties")
    is_wide = isinstance(properties, dict) and len(properties) > _MANY_PROPERTIES
    return is_wide or (place.allows("string") and has_lengths(place.schema))


def _always(place: Place) -> bool:  # noqa: ARG001 - a table's function
    return True


def _in_array(place: Place) -> bool:
    return place.allows("array")


def _is_set(place: Place) -> bool:
    return place.allows("array") and place.schema["uniqueItems"] is not False


def _in_number(place: Place) -> bool:
    return place.allows("integer", "number")


def _in_bounded_string(place: Place) -> bool:
    return place.allows("string") and has_lengths(place.schema)


def _is_unknown_format(place: Place) -> bool:
    return place.allows("string") and place.schema["format"] not in _FORMATS


def _has_long_repeat(place: Place) -> bool:
    return _repeats_too_often(place.schema["pattern"])


def _names_meet_properties(place: Place) -> bool:
    names = place.schema["propertyNames"]
    bounded = isinstance(names, dict) and ("pattern" in names or "format" in names) and has_lengths(names)
    beside = "properties" in place.schema or "patternProperties" in place.schema
    return bounded or beside or place.schema.get("unevaluatedProperties", True) is not True


def _patterns_meet(place: Place) -> bool:
    return "properties" in place.schema or len(place.schema["patternProperties"]) > 1


def _has_branches(place: Place) -> bool:
    return len(place.schema["allOf"]) > 1


def _branches_meet(place: Place) -> bool:
    return not are_apart(place.schema["oneOf"])


def _is_untyped(place: Place) -> bool:
    return not place.types() and not is_ruled_alone(place)


def _names_unknown(place: Place) -> bool:
    return not place.schema.get("properties", {}).keys() >= set(place.schema["required"])


def _has_pattern(place: Place) -> bool:
    return place.allows("string") and "pattern" in place.schema


def _is_ipv4(place: Place) -> bool:
    return place.allows("string") and place.schema["format"] == "ipv4"


def _needs_escapes(place: Place) -> bool:
    return place.allows("string") and _ESCAPED_IN_JSON.search(place.schema["pattern"]) is not None


def _repeats_too_often(pattern: str) -> bool:
    bounds = (bound.lstrip("0") for match in _REPEAT.finditer(pattern) for bound in match.groups())
    # Python reads no number of thousands of digits.
    return any(len(bound) > _REPEAT_DIGITS or int(bound or 0) > _REPEAT_LIMIT for bound in bounds)


_XGRAMMAR_IGNORES: Final = (
    _Rule("not", _always),
    _Rule("if", _always),
    _Rule("then", _always),
    _Rule("else", _always),
    _Rule("dependentRequired", _always),
    _Rule("dependentSchemas", _always),
    _Rule("dependencies", _always),
    _Rule("uniqueItems", _is_set),
    _Rule("contains", _in_array),
    _Rule("minContains", _in_array),
    _Rule("maxContains", _in_array),
    _Rule("multipleOf", _in_number),
    *(
        _Rule(keyword, is_ruled_alone, "xgrammar does not enforce what stands beside it")
        for keyword in ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
    ),
    *(
        _Rule(keyword, _is_untyped, "xgrammar does not enforce it without a type beside it")
        for keyword in ("pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    ),
    _Rule("oneOf", _branches_meet, "xgrammar takes what several branches of oneOf allow"),
    _Rule("required", _names_unknown, "xgrammar does not enforce a name that is no key of properties"),
    _Rule("format", _has_pattern, "xgrammar does not enforce a pattern beside a format"),
    _Rule("format", _is_ipv4, "xgrammar takes numbers with leading zeros"),
    _Rule("pattern", _needs_escapes, "xgrammar writes it into the string without escapes"),
    _Rule("allOf", _has_branches, "xgrammar does not enforce allOf with several branches"),
    _Rule("format", _is_unknown_format, "xgrammar does not know the format"),
    _Rule("format", _in_bounded_string, "xgrammar does not enforce a length beside a format"),
    _Rule("pattern", _in_bounded_string, "xgrammar does not enforce a length beside a pattern"),
    _Rule("pattern", _has_long_repeat, f"xgrammar refuses a repeat bound over {_REPEAT_LIMIT}"),
    _Rule("propertyNames", _names_meet_properties, "xgrammar does not enforce it beside the other keywords"),
    _Rule("patternProperties", _patterns_meet, "xgrammar does not enforce it beside the other keywords"),
)
