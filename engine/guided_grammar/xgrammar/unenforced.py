"""What xgrammar takes and does not enforce, or refuses late; for 0.2.8.

vLLM 0.32 knows of some of it (`has_xgrammar_unsupported_json_features`).
"""

import re
from collections.abc import Callable
from typing import Any, Final

from guided_contract.wire import Kind
from guided_grammar import texts
from guided_grammar.backend import Unsupported
from guided_grammar.json_schema.keywords import BOUNDS, has_lengths, numbers
from guided_grammar.json_schema.ruled_alone import RULERS, is_ruled_alone
from guided_grammar.json_schema.subschemas import Place, walk
from guided_grammar.rules import Rule, by_keyword, concern, first, is_untyped, seen

# Of those that a normal form has.
_FORMATS: Final = frozenset(["duration", "email", "ipv4", "ipv6", "uuid"])
_REPEAT: Final = re.compile(r"(?<!\\)\{(\d*)(?:,(\d*))?\}")
_REPEAT_LIMIT: Final = 128
_REPEAT_DIGITS: Final = len(str(_REPEAT_LIMIT))
_LONGEST: Final = (1 << 63) - 1
_DECIMALS: Final = 6
_OTHERWISE: Final = "xgrammar takes a whole text for it, without escapes and anchors within"
_LONG_REPEAT: Final = f"xgrammar refuses a repeat bound over {_REPEAT_LIMIT}"
_OPEN: Final = ("additionalProperties", "patternProperties")

_HALF: Final = "half of a surrogate pair is no character; write the character itself"
_SURROGATE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u|u\{|U0000|x\{)[dD][89a-fA-F][0-9a-fA-F]{2}")


def lacks(kind: Kind, value: Any) -> Unsupported | None:
    """Return the first thing that xgrammar does not enforce; see Library."""
    if kind == "json":
        return first(RULES, walk(value)) if concern(RULES, value) else None
    if kind == "regex" and _repeats_too_often(value):
        return Unsupported(None, _LONG_REPEAT)
    if kind in {"regex", "grammar"} and _SURROGATE.search(value):
        return Unsupported(None, _HALF)
    return None


def _is_bounded(place: Place) -> bool:
    return has_lengths(place.schema)


def _is_unknown_format(place: Place) -> bool:
    return place.schema["format"] not in _FORMATS


def _has_long_repeat(place: Place) -> bool:
    return _repeats_too_often(place.schema["pattern"])


def _patterns_meet(place: Place) -> bool:
    return "properties" in place.schema or len(place.schema["patternProperties"]) > 1


def _has_branches(place: Place) -> bool:
    return len(place.schema["allOf"]) > 1


def _names_come_twice(place: Place) -> bool:
    is_open = any(place.schema.get(keyword, False) is not False for keyword in _OPEN)
    return is_open and not all(map(str.isascii, place.schema["properties"]))


def _names_unknown(place: Place) -> bool:
    return not place.schema.get("properties", {}).keys() >= set(place.schema["required"])


def _has_pattern(place: Place) -> bool:
    return "pattern" in place.schema


def _is_ipv4(place: Place) -> bool:
    return bool(place.schema["format"] == "ipv4")


def _is_read_otherwise(place: Place) -> bool:
    return not texts.is_plain_pattern(place.schema["pattern"])


def _are_read_otherwise(place: Place) -> bool:
    return not all(map(texts.is_plain_pattern, place.schema["patternProperties"]))


def _is_written_otherwise(keyword: str) -> Callable[[Place], bool]:
    def applies(place: Place) -> bool:
        return any(abs(n) > _LONGEST or n != int(n) for n in numbers(place.schema[keyword]))

    return applies


def _is_rounded(keyword: str) -> Callable[[Place], bool]:
    def applies(place: Place) -> bool:
        bound: float = place.schema[keyword]
        return bound != round(bound, _DECIMALS)

    return applies


def _repeats_too_often(pattern: str) -> bool:
    """Return whether a pattern has a repeat bound that xgrammar's compiler refuses."""
    bounds = (bound.lstrip("0") for match in _REPEAT.finditer(pattern) for bound in match.groups(""))
    # Python reads no number of thousands of digits.
    return any(len(bound) > _REPEAT_DIGITS or int(bound or 0) > _REPEAT_LIMIT for bound in bounds)


RULES: Final = by_keyword(
    (
        *seen("xgrammar"),
        Rule("format", is_untyped, "xgrammar does not enforce it without a type beside it"),
        *(
            Rule(keyword, is_ruled_alone, "xgrammar does not enforce what stands beside it")
            for keyword in RULERS
        ),
        Rule("properties", _names_come_twice, "xgrammar takes a name beyond ASCII also for a further one"),
        Rule("required", _names_unknown, "xgrammar does not enforce a name that is no key of properties"),
        Rule("format", _has_pattern, "xgrammar does not enforce a pattern beside a format"),
        Rule("format", _is_ipv4, "xgrammar takes numbers with leading zeros"),
        Rule("pattern", _is_read_otherwise, _OTHERWISE),
        Rule("patternProperties", _are_read_otherwise, _OTHERWISE),
        *(
            Rule(keyword, _is_written_otherwise(keyword), "xgrammar writes a number with other digits")
            for keyword in ("const", "enum")
        ),
        *(
            Rule(keyword, _is_rounded(keyword), f"xgrammar rounds bounds to {_DECIMALS} decimals")
            for keyword in BOUNDS
        ),
        Rule("allOf", _has_branches, "xgrammar does not enforce allOf with several branches"),
        Rule("format", _is_unknown_format, "xgrammar does not know the format"),
        Rule("format", _is_bounded, "xgrammar does not enforce a length beside a format"),
        Rule("pattern", _is_bounded, "xgrammar does not enforce a length beside a pattern"),
        Rule("pattern", _has_long_repeat, _LONG_REPEAT),
        Rule("patternProperties", _patterns_meet, "xgrammar does not enforce it beside the other keywords"),
    )
)
