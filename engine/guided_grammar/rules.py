"""Rules of what a library takes and does not enforce: those that were measured, and how any are applied.

A keyword that a library ignores wherever JSON-Schema-Test-Suite has it, or ignores wherever no type stands
beside it, is in `measured`. What it enforces in part has rules in its backend's `unenforced`. `make
schema-table` shows that nothing is missing. Rules are for schemas in their normal form, which has no keyword
about values of a type that `type` excludes, and bounds that are within 64 bits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from guided_contract.backends import Backend, entry
from guided_grammar import measured
from guided_grammar.backend import Unsupported
from guided_grammar.json_schema.keywords import CONSTRAINTS
from guided_grammar.json_schema.ruled_alone import is_ruled_alone
from guided_grammar.json_schema.subschemas import Place, within


class Rule(NamedTuple):
    """Where a keyword is not enforced, given the schema's place and the keyword's value, and why in words."""

    keyword: str
    applies: Callable[[Place, Any], bool]
    reason: str


Rules = Mapping[str, Sequence[Rule]]  # by keyword


def by_keyword(rules: Iterable[Rule]) -> Rules:
    """Return rules by their keywords, in order."""
    table: dict[str, list[Rule]] = {}
    for rule in rules:
        table.setdefault(rule.keyword, []).append(rule)
    return table


def concern(rules: Rules, schema: Any) -> bool:
    """Return whether some rule is about a keyword of `schema`, a parsed JSON Schema."""
    return not all(map(rules.keys().isdisjoint, within(schema)))


def are_about(schema: Any) -> bool:
    """Return whether a normal form has a keyword, which a library enforces, or not, by its version."""
    return not all(map(CONSTRAINTS.isdisjoint, within(schema)))


def first(rules: Rules, places: Iterable[Place]) -> Unsupported | None:
    """Return the first keyword, in the order of `places`, to which a rule applies; None if there is none."""
    for place in places:
        for keyword, value in place.schema.items():
            for rule in rules.get(keyword, ()):
                if rule.applies(place, value):
                    return Unsupported(place.at(keyword), rule.reason)
    return None


def seen(backend: Backend) -> Iterator[Rule]:
    """Yield a rule for each keyword that a library was seen to ignore, always or where no type is named."""
    library = entry(backend).distribution
    for keyword, made in measured.KEYWORDS[backend].items():
        if (made.untyped, made.typed) == ("ignored", "ignored"):
            yield Rule(keyword, lambda _place, _value: True, f"{library} does not enforce it")
        elif made.untyped == "ignored":
            yield Rule(keyword, is_untyped, f"{library} does not enforce it without a type beside it")


def is_untyped(place: Place, _value: Any) -> bool:
    """Apply where no type stands beside the keyword."""
    return not place.types() and not is_ruled_alone(place)
