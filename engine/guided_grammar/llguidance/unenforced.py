"""What llguidance takes and does not enforce; for 1.7.6.

It refuses what it cannot enforce, with a message, but for two cases: beside a fraction with the same whole
part, it takes an exclusive bound that is whole for an inclusive one (0 for exclusiveMinimum 0 and maximum
0.5); and it rounds values and the bounds of integers beyond 2^53.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from guided_contract.wire import Kind
from guided_grammar.backend import Unsupported
from guided_grammar.json_schema.keywords import asserts, numbers
from guided_grammar.json_schema.subschemas import Place, walk
from guided_grammar.llguidance import tags
from guided_grammar.rules import Rule, by_keyword, concern, first, seen

_INCLUSIVE: Final = "llguidance takes the bound itself where the other bound has the same whole part"
_LONGEST: Final = 1 << 53
_DIGITS: Final = 53
_MOST: Final = (1 << 63) - 1
_ROUNDED: Final = f"llguidance rounds numbers beyond {_LONGEST}"
# Of arrays in which one place or another has to hold something, all places are followed at once: with twenty,
# where the items between can be anything, a mask takes more than llguidance may hold.
_MOST_PLACES: Final = 12
_PLACES: Final = f"more than {_MOST_PLACES} ways in which items of an array may meet it are not followed"
_OPPOSITE: Final = {
    "exclusiveMinimum": ("maximum", "exclusiveMaximum"),
    "exclusiveMaximum": ("minimum", "exclusiveMinimum"),
}


def lacks(kind: Kind, value: Any) -> Unsupported | None:
    """Return the first thing that llguidance does not enforce; see Library."""
    if kind == "structural_tag":
        reason = tags.lacks(value["format"]) if "format" in value else None
        return Unsupported("$.format", reason) if reason else None
    if kind != "json" or not concern(RULES, value):
        return None
    places = list(walk(value))
    return first(RULES, places) or _bounds_of_several(places)


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
    return any(keyword in place.schema for keyword in ("$ref", "anyOf")) and asserts(place.schema)


def _is_taken_for_inclusive(keyword: str) -> Callable[[Place, Any], bool]:
    def applies(place: Place, bound: Any) -> bool:
        beside = [place.schema[other] for other in _OPPOSITE[keyword] if other in place.schema]
        return place.allows("number") and _rounds_to(bound, beside)

    return applies


def _is_rounded(_place: Place, value: Any) -> bool:
    return any(abs(number) > _LONGEST for number in numbers(value))


def _is_another_bound(keyword: str) -> Callable[[Place, Any], bool]:
    """Return a rule: beyond 2^53 no double is beside an exclusive bound; 2^63 is cut to 2^63 - 1."""

    def applies(place: Place, bound: Any) -> bool:
        if not place.allows("integer") or abs(bound) < _LONGEST:
            return False
        if keyword in _OPPOSITE:
            return True
        if keyword == "maximum" and bound == _MOST:
            return False
        return bool(bound % (1 << (abs(int(bound)).bit_length() - _DIGITS)))

    return applies


def _rounds_to(bound: Any, others: Sequence[Any]) -> bool:
    """Return whether a whole number is the whole part of one of the others, which is a fraction."""
    return bool(bound == int(bound)) and any(other != bound and int(other) == bound for other in others)


def _has_many_places(place: Place, beside: Any) -> bool:
    schema = place.schema
    parts = [schema, *(part for part in beside if isinstance(part, dict))]
    is_closed = any(
        "items" in part and "prefixItems" not in part and not _is_open(part["items"]) for part in parts
    )
    return not is_closed and _places(schema) > _MOST_PLACES


def _places(schema: Any) -> int:
    """Return in how many ways an array may meet a schema, by what its branches say of open items."""
    if not isinstance(schema, dict):
        return 1
    own = sum(_places(branch) for branch in schema.get("anyOf", ()) if _chooses(branch))
    return math.prod([max(own, 1), *map(_places, schema.get("allOf", ()))])


def _chooses(branch: Any) -> bool:
    return isinstance(branch, dict) and (
        any(map(_is_open, branch.get("prefixItems", ()))) or _places(branch) > 1
    )


def _is_open(item: Any) -> bool:
    """Return whether an item can hold further items, as far as its type tells."""
    if not isinstance(item, dict):
        return bool(item)
    types = item.get("type", "array")
    return not {"array", "object"}.isdisjoint([types] if isinstance(types, str) else types)


RULES: Final = by_keyword(
    (
        *seen("guidance"),
        Rule("allOf", _has_many_places, _PLACES),
        *(Rule(keyword, _is_rounded, _ROUNDED) for keyword in ("const", "enum")),
        *(
            Rule(keyword, _is_another_bound(keyword), _ROUNDED)
            for keyword in ("minimum", "maximum", *_OPPOSITE)
        ),
        *(Rule(keyword, _is_taken_for_inclusive(keyword), _INCLUSIVE) for keyword in _OPPOSITE),
    )
)
