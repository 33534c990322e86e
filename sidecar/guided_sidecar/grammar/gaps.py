"""What a library takes and does not enforce, made by running both.

A keyword that a library ignores wherever JSON-Schema-Test-Suite has it, or ignores wherever no type stands
beside it, is in `measured`. What it enforces in part has a rule here (vLLM 0.32 knows of some of them,
`has_xgrammar_unsupported_json_features`): for xgrammar 0.2.8 where a keyword is ignored, or refused late.
llguidance 1.7.6 refuses what it cannot enforce, with a message, but for one case: beside a fraction with the
same whole part, it takes an exclusive bound that is whole for an inclusive one (0 for exclusiveMinimum 0 and
maximum 0.5). `make schema-table` shows that nothing is missing.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from guided_contract.wire import Backend
from guided_sidecar.grammar import measured
from guided_sidecar.grammar.alternatives import are_apart, is_ruled_alone
from guided_sidecar.grammar.keywords import asserts, has_lengths
from guided_sidecar.grammar.subschemas import Place, walk, within
from guided_sidecar.grammar.trust import NAMES

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
_REPEAT: Final = re.compile(r"(?<!\\)\{(\d*)(?:,(\d*))?\}")
_REPEAT_LIMIT: Final = 128
_REPEAT_DIGITS: Final = len(str(_REPEAT_LIMIT))
# What a JSON string holds as an escape: quotes, backslashes, control characters, spaces that hold some.
_ESCAPED_IN_JSON: Final = re.compile(r'["\x00-\x1f]|\\[\\nrtfvscux0-7]')

_INCLUSIVE: Final = "llguidance takes the bound itself where the other bound has the same whole part"
_LONG_REPEAT: Final = f"xgrammar refuses a repeat bound over {_REPEAT_LIMIT}"
_PLAIN_NAME: Final = re.compile(r"[ !#-\[\]-~]*")
_OPEN: Final = ("additionalProperties", "patternProperties", "unevaluatedProperties")


class Unsupported(NamedTuple):
    """What a library does not enforce: a keyword's JSONPath (None: it is no schema), and why in words."""

    path: str | None
    reason: str


class _Rule(NamedTuple):
    keyword: str
    applies: Callable[[Place], bool]
    reason: str = "xgrammar does not enforce it"


def ignores(backend: Backend, schema: Any) -> Unsupported | None:
    """Return the first keyword that a backend would accept and not enforce, or refuse late; None: none."""
    rules = _RULES[backend]
    if all(map(rules.keys().isdisjoint, within(schema))):
        return None  # as nearly always for llguidance
    places = list(walk(schema))
    for place in places:
        for keyword in place.schema:
            for rule in rules.get(keyword, ()):
                if rule.applies(place):
                    return Unsupported(place.at(keyword), rule.reason)
    return _bounds_of_several(places) if backend == "guidance" else None


def are_asked_about(schema: Any) -> bool:
    """Return whether a schema has a keyword that a library may enforce or not, by its version."""
    return any(not _KNOWN.isdisjoint(part) for part in within(schema))


def in_regex(backend: Backend, pattern: str) -> Unsupported | None:
    """Return why a backend would refuse a regex late; None: it would not."""
    if backend == "xgrammar" and repeats_too_often(pattern):
        return Unsupported(None, _LONG_REPEAT)
    return None


def _bounds_of_several(places: Sequence[Place]) -> Unsupported | None:
    """Look for bounds of several schemas that llguidance joins, and then takes the exclusive one wrongly.

    Which of them it joins is not looked at: where schemas are joined at all, any two bounds may meet.
    """
    if not any(keyword in place.schema for place in places for keyword in _OPPOSITE):
        return None
    if not any(_joins(place) for place in places):
        return None
    for keyword, opposite in _OPPOSITE.items():
        others = [place.schema[other] for place in places for other in opposite if other in place.schema]
        for place in places:
            if keyword in place.schema and _rounds_to(place.schema[keyword], others):
                return Unsupported(place.at(keyword), _INCLUSIVE)
    return None


def _joins(place: Place) -> bool:
    if "allOf" in place.schema:
        return True
    return any(keyword in place.schema for keyword in ("$ref", "anyOf", "oneOf")) and asserts(place.schema)


def _always(place: Place) -> bool:  # noqa: ARG001 - a table's function
    return True


def _is_set(place: Place) -> bool:
    return place.allows("array") and place.schema["uniqueItems"] is not False


def _in_bounded_string(place: Place) -> bool:
    return place.allows("string") and has_lengths(place.schema)


def _is_unknown_format(place: Place) -> bool:
    return place.allows("string") and place.schema["format"] not in _FORMATS


def _has_long_repeat(place: Place) -> bool:
    return repeats_too_often(place.schema["pattern"])


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


def _leads_elsewhere(place: Place) -> bool:
    reference = place.schema["$ref"]
    return not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/"))


def _is_inner(place: Place) -> bool:
    return place.path != "$"


def _names_come_twice(place: Place) -> bool:
    names = place.schema["properties"]
    is_open = any(place.schema.get(keyword, False) is not False for keyword in _OPEN)
    return is_open and not all(_PLAIN_NAME.fullmatch(name) for name in names)


def _names_unknown(place: Place) -> bool:
    return not place.schema.get("properties", {}).keys() >= set(place.schema["required"])


def _has_pattern(place: Place) -> bool:
    return place.allows("string") and "pattern" in place.schema


def _is_ipv4(place: Place) -> bool:
    return place.allows("string") and place.schema["format"] == "ipv4"


def _needs_escapes(place: Place) -> bool:
    return place.allows("string") and _ESCAPED_IN_JSON.search(place.schema["pattern"]) is not None


def _knows_white_space(place: Place) -> bool:
    return place.allows("string") and "\\S" in place.schema["pattern"]


def _is_taken_for_inclusive(keyword: str) -> Callable[[Place], bool]:
    others = _OPPOSITE[keyword]

    def applies(place: Place) -> bool:
        beside = [place.schema[other] for other in others if other in place.schema]
        return place.allows("number") and _rounds_to(place.schema[keyword], beside)

    return applies


def _rounds_to(bound: Any, others: Sequence[Any]) -> bool:
    """Return whether a whole number is the whole part of one of the others, which is a fraction."""
    # Numbers alone are bounds: an early draft's `exclusiveMinimum: true` is not.
    if not _is_number(bound) or bound != int(bound):
        return False
    return any(_is_number(other) and other != bound and int(other) == bound for other in others)


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}


def repeats_too_often(pattern: str) -> bool:
    """Return whether a pattern has a repeat bound that xgrammar's compiler refuses."""
    bounds = (bound.lstrip("0") for match in _REPEAT.finditer(pattern) for bound in match.groups(""))
    # Python reads no number of thousands of digits.
    return any(len(bound) > _REPEAT_DIGITS or int(bound or 0) > _REPEAT_LIMIT for bound in bounds)


_OPPOSITE: Final = {
    "exclusiveMinimum": ("maximum", "exclusiveMaximum"),
    "exclusiveMaximum": ("minimum", "exclusiveMinimum"),
}


def _seen(backend: Backend) -> Iterator[_Rule]:
    """Yield a rule for each keyword that a library was seen to ignore, always or where no type is named."""
    for keyword, seen in measured.KEYWORDS[backend].items():
        if (seen.untyped, seen.typed) == ("ignored", "ignored"):
            yield _Rule(
                keyword, _is_about(measured.TYPES.get(keyword)), f"{NAMES[backend]} does not enforce it"
            )
        elif seen.untyped == "ignored":
            reason = f"{NAMES[backend]} does not enforce it without a type beside it"
            yield _Rule(keyword, _is_untyped, reason)


def _is_about(kind: str | None) -> Callable[[Place], bool]:
    if kind is None:
        return _always
    types = ("integer", "number") if kind == "number" else (kind,)
    return lambda place: place.allows(*types)


_GUIDANCE_IGNORES: Final = (
    *_seen("guidance"),
    *(_Rule(keyword, _is_taken_for_inclusive(keyword), _INCLUSIVE) for keyword in _OPPOSITE),
)
_XGRAMMAR_IGNORES: Final = (
    *_seen("xgrammar"),
    _Rule("not", _always),
    _Rule("dependentRequired", _always),
    _Rule("dependencies", _always),
    _Rule("$recursiveRef", _always),
    _Rule("format", _is_untyped, "xgrammar does not enforce it without a type beside it"),
    _Rule("uniqueItems", _is_set),
    *(
        _Rule(keyword, is_ruled_alone, "xgrammar does not enforce what stands beside it")
        for keyword in ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
    ),
    _Rule("$ref", _leads_elsewhere, "xgrammar follows plain paths from the schema's root only"),
    _Rule("$id", _is_inner, "xgrammar follows references from the schema's root only"),
    _Rule("oneOf", _branches_meet, "xgrammar takes what several branches of oneOf allow"),
    _Rule("properties", _names_come_twice, "xgrammar takes a name with escapes also for a further one"),
    _Rule("required", _names_unknown, "xgrammar does not enforce a name that is no key of properties"),
    _Rule("format", _has_pattern, "xgrammar does not enforce a pattern beside a format"),
    _Rule("format", _is_ipv4, "xgrammar takes numbers with leading zeros"),
    _Rule("pattern", _needs_escapes, "xgrammar writes it into the string without escapes"),
    _Rule("pattern", _knows_white_space, "xgrammar takes white space beyond ASCII for none"),
    _Rule("allOf", _has_branches, "xgrammar does not enforce allOf with several branches"),
    _Rule("format", _is_unknown_format, "xgrammar does not know the format"),
    _Rule("format", _in_bounded_string, "xgrammar does not enforce a length beside a format"),
    _Rule("pattern", _in_bounded_string, "xgrammar does not enforce a length beside a pattern"),
    _Rule("pattern", _has_long_repeat, _LONG_REPEAT),
    _Rule("propertyNames", _names_meet_properties, "xgrammar does not enforce it beside the other keywords"),
    _Rule("patternProperties", _patterns_meet, "xgrammar does not enforce it beside the other keywords"),
)


def _by_keyword(rules: Sequence[_Rule]) -> dict[str, list[_Rule]]:
    table: dict[str, list[_Rule]] = {}
    for rule in rules:
        table.setdefault(rule.keyword, []).append(rule)
    return table


_RULES: Final[dict[Backend, dict[str, list[_Rule]]]] = {
    "xgrammar": _by_keyword(_XGRAMMAR_IGNORES),
    "guidance": _by_keyword(_GUIDANCE_IGNORES),
}

# All keywords of which something is known: whether a library enforces one was seen, with one version of it.
_KNOWN: Final = frozenset[str]().union(*measured.KEYWORDS.values(), *_RULES.values())
