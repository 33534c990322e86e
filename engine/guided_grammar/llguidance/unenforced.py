"""What llguidance takes and does not enforce; for 1.7.6.

It refuses what it cannot enforce, with a message, but for two cases: beside a fraction with the same whole
part, it takes an exclusive bound that is whole for an inclusive one (0 for exclusiveMinimum 0 and maximum
0.5); and it rounds values beyond 2^53.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from guided_contract.wire import Kind
from guided_grammar.backend import Unsupported
from guided_grammar.json_schema.keywords import asserts, numbers
from guided_grammar.json_schema.subschemas import Place, walk
from guided_grammar.rules import Rule, by_keyword, concern, first, seen

_INCLUSIVE: Final = "llguidance takes the bound itself where the other bound has the same whole part"
_LONGEST: Final = 1 << 53
_ROUNDED: Final = f"llguidance rounds numbers beyond {_LONGEST}"
_OPPOSITE: Final = {
    "exclusiveMinimum": ("maximum", "exclusiveMaximum"),
    "exclusiveMaximum": ("minimum", "exclusiveMinimum"),
}


def lacks(kind: Kind, value: Any) -> Unsupported | None:
    """Return the first thing that llguidance does not enforce; see Library."""
    if kind == "structural_tag" and "structures" not in value:
        return Unsupported(None, "llguidance takes structural tags in their old form only")
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


def _is_taken_for_inclusive(keyword: str) -> Callable[[Place], bool]:
    others = _OPPOSITE[keyword]

    def applies(place: Place) -> bool:
        beside = [place.schema[other] for other in others if other in place.schema]
        return place.allows("number") and _rounds_to(place.schema[keyword], beside)

    return applies


def _is_rounded(keyword: str) -> Callable[[Place], bool]:
    def applies(place: Place) -> bool:
        return any(abs(number) > _LONGEST for number in numbers(place.schema[keyword]))

    return applies


def _rounds_to(bound: Any, others: Sequence[Any]) -> bool:
    """Return whether a whole number is the whole part of one of the others, which is a fraction."""
    if not _is_number(bound) or bound != int(bound):
        return False
    return any(_is_number(other) and other != bound and int(other) == bound for other in others)


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}


RULES: Final = by_keyword(
    (
        *seen("guidance"),
        *(Rule(keyword, _is_rounded(keyword), _ROUNDED) for keyword in ("const", "enum")),
        *(Rule(keyword, _is_taken_for_inclusive(keyword), _INCLUSIVE) for keyword in _OPPOSITE),
    )
)
