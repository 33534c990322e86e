"""What llguidance takes and does not enforce; for 1.7.6.

It refuses what it cannot enforce, with a message, but for two cases: beside a fraction with the same whole
part, it takes an exclusive bound that is whole for an inclusive one (0 for exclusiveMinimum 0 and maximum
0.5); and it rounds values and the bounds of integers beyond 2^53.
"""

from collections.abc import Sequence
from typing import Any, Final

from guided_contract.wire import Kind
from guided_grammar.backend import Unsupported
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import BOUNDS, asserts, numbers
from guided_grammar.json_schema.subschemas import Place, within
from guided_grammar.rules import Rule, first
from guided_grammar.texts import is_lark

_INCLUSIVE: Final = "llguidance allows the bound itself if the other bound has the same integer part"
_LONGEST: Final = 1 << 53
_DIGITS: Final = 53
_MOST: Final = (1 << 63) - 1
_ROUNDED: Final = f"llguidance rounds numbers beyond {_LONGEST}"
_OPPOSITE: Final = {
    "exclusiveMinimum": ("maximum", "exclusiveMaximum"),
    "exclusiveMaximum": ("minimum", "exclusiveMinimum"),
}
_OF_NUMBERS: Final = frozenset(["const", "enum", *BOUNDS])


def lacks(kind: Kind, value: Any) -> Unsupported | None:
    """Return the first thing that llguidance does not enforce; see Library."""
    if kind == "grammar" and not is_lark(value):
        return Unsupported(None, "llguidance reads only Lark, and this is EBNF; use xgrammar")
    if kind != "json" or all(map(_OF_NUMBERS.isdisjoint, within(value))):
        return None
    places = list(subschemas.places(value))
    return first(_RULES, places) or _taken_for_inclusive(places)


def _taken_for_inclusive(places: Sequence[Place]) -> Unsupported | None:
    """Look for an exclusive bound; where schemas are joined at all, any two of all bounds may meet."""
    is_joined = any(map(_joins, places))
    for keyword, opposite in _OPPOSITE.items():
        known = _bounds(places, opposite) if is_joined else []
        for place in places:
            if keyword not in place.schema or not (is_joined or place.allows("number")):
                continue
            if _rounds_to(place.schema[keyword], known or _bounds([place], opposite)):
                return Unsupported(place.at(keyword), _INCLUSIVE)
    return None


def _bounds(places: Sequence[Place], keywords: Sequence[str]) -> list[Any]:
    return [place.schema[keyword] for place in places for keyword in keywords if keyword in place.schema]


def _joins(place: Place) -> bool:
    if "allOf" in place.schema:
        return True
    return any(keyword in place.schema for keyword in ("$ref", "anyOf")) and asserts(place.schema)


def _rounds_to(bound: Any, others: Sequence[Any]) -> bool:
    """Return whether a whole number is the whole part of one of the others, which is a fraction."""
    return bool(bound == int(bound)) and any(other != bound and int(other) == bound for other in others)


def _is_far(place: Place, bound: Any) -> bool:
    """Return whether a bound of integers is where no double is beside it."""
    return place.allows("integer") and abs(bound) >= _LONGEST


def _is_cut(place: Place, bound: Any) -> bool:
    return _is_far(place, bound) and bool(bound % (1 << (abs(int(bound)).bit_length() - _DIGITS)))


_RULES: Final = (
    Rule(["const", "enum"], lambda _, value: any(abs(n) > _LONGEST for n in numbers(value)), _ROUNDED),
    Rule(_OPPOSITE, _is_far, _ROUNDED),
    Rule(["minimum"], _is_cut, _ROUNDED),
    # 2^63 is cut to 2^63 - 1.
    Rule(["maximum"], lambda place, bound: bound != _MOST and _is_cut(place, bound), _ROUNDED),
)
