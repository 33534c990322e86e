"""What xgrammar takes and does not enforce, or refuses late; for 0.2.8.

vLLM 0.32 knows of some of it (`has_xgrammar_unsupported_json_features`).
"""

import re
from typing import Any, Final

from guided_contract.wire import Kind
from guided_grammar import texts
from guided_grammar.backend import Unsupported
from guided_grammar.json_schema.keywords import BOUNDS, has_lengths, numbers
from guided_grammar.json_schema.ruled_alone import RULERS, is_ruled_alone
from guided_grammar.json_schema.subschemas import walk
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


def _is_open(schema: dict[str, Any]) -> bool:
    return any(schema.get(keyword, False) is not False for keyword in _OPEN)


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
            Rule(
                keyword,
                lambda place, _: is_ruled_alone(place),
                "xgrammar does not enforce what stands beside it",
            )
            for keyword in RULERS
        ),
        Rule(
            "properties",
            lambda place, names: _is_open(place.schema) and not all(map(str.isascii, names)),
            "xgrammar takes a name beyond ASCII also for a further one",
        ),
        Rule(
            "required",
            lambda place, names: not place.schema.get("properties", {}).keys() >= set(names),
            "xgrammar does not enforce a name that is no key of properties",
        ),
        Rule(
            "format",
            lambda place, _: "pattern" in place.schema,
            "xgrammar does not enforce a pattern beside a format",
        ),
        Rule("format", lambda _, name: name == "ipv4", "xgrammar takes numbers with leading zeros"),
        Rule("pattern", lambda _, pattern: not texts.is_plain_pattern(pattern), _OTHERWISE),
        Rule("patternProperties", lambda _, parts: not all(map(texts.is_plain_pattern, parts)), _OTHERWISE),
        *(
            Rule(
                keyword,
                lambda _, value: any(abs(n) > _LONGEST or n != int(n) for n in numbers(value)),
                "xgrammar writes a number with other digits",
            )
            for keyword in ("const", "enum")
        ),
        *(
            Rule(
                keyword,
                lambda _, bound: bound != round(bound, _DECIMALS),
                f"xgrammar rounds bounds to {_DECIMALS} decimals",
            )
            for keyword in BOUNDS
        ),
        Rule(
            "allOf",
            lambda _, parts: len(parts) > 1,
            "xgrammar does not enforce allOf with several branches",
        ),
        Rule("format", lambda _, name: name not in _FORMATS, "xgrammar does not know the format"),
        *(
            Rule(
                keyword,
                lambda place, _: has_lengths(place.schema),
                f"xgrammar does not enforce a length beside a {keyword}",
            )
            for keyword in ("format", "pattern")
        ),
        Rule("pattern", lambda _, pattern: _repeats_too_often(pattern), _LONG_REPEAT),
        Rule(
            "patternProperties",
            lambda place, parts: "properties" in place.schema or len(parts) > 1,
            "xgrammar does not enforce it beside the other keywords",
        ),
    )
)
