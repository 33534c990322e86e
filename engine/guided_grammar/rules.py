"""Rules of what a library takes of a schema in its normal form, and does not enforce."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from guided_grammar.backend import Unsupported
from guided_grammar.json_schema.subschemas import Place


class Rule(NamedTuple):
    """Where keywords are not enforced, given the schema's place and the keyword's value, and why in words."""

    keywords: Collection[str]
    applies: Callable[[Place, Any], bool]
    reason: str


def first(rules: Iterable[Rule], places: Iterable[Place]) -> Unsupported | None:
    """Return the first keyword, in the order of `places`, to which a rule applies; None if there is none."""
    for place in places:
        for keyword, value in place.schema.items():
            for rule in rules:
                if keyword in rule.keywords and rule.applies(place, value):
                    return Unsupported(place.at(keyword), rule.reason)
    return None
