"""What xgrammar takes and does not enforce, or refuses late; for 0.2.8.

vLLM 0.32 knows of some of it (`has_xgrammar_unsupported_json_features`). Rules are for schemas in their
normal form, whose bounds are within 64 bits.
"""

import re
from typing import Any, Final

from guided_contract.wire import Kind
from guided_grammar.backend import Unsupported
from guided_grammar.json_schema.keywords import BOUNDS, CONSTRAINTS, LENGTHS, has_lengths, numbers
from guided_grammar.json_schema.subschemas import ROOT, Place, places
from guided_grammar.rules import Rule, first
from guided_grammar.texts import is_lark

# It reads a schema by the first of these that it finds there, and nothing beside it.
_RULERS: Final = ("$ref", "const", "enum", "anyOf", "allOf")
_OF_TYPE: Final = frozenset(
    [
        *BOUNDS,
        *LENGTHS,
        "format",
        "maxItems",
        "maxProperties",
        "minItems",
        "minProperties",
        "pattern",
        "patternProperties",
    ]
)
# Of those that a normal form has; of ipv4 it takes numbers with leading zeros.
_FORMATS: Final = frozenset(["duration", "email", "ipv6", "uuid"])
# A pattern of a whole text, without groups and choices: characters that a JSON string holds as they are,
# classes of them, repeats. xgrammar takes any pattern for one of a whole text, ignores anchors within, takes
# other texts where repeats stand beside choices (`^(a|ab?)$` takes `b`), and writes no escapes.
_CHARACTER: Final = r'(?:[^\x00-\x1f\x7f"\\^$.|?*+()\[\]{}]|\\[-.^$|?*+()\[\]{}/d])'
_CLASS: Final = (
    r'\[(?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[^\x00-\x1f\x7f"\\^\[\]-]|\\[-.^$|?*+()\[\]{}/d])+-?\]'
)
_PLAIN: Final = re.compile(rf"\^(?:(?:{_CHARACTER}|{_CLASS})(?:[*+?]|\{{\d+(?:,\d*)?\}})?)*\$")
_REPEAT: Final = re.compile(r"(?<!\\)\{(\d*)(?:,(\d*))?\}")
_REPEAT_LIMIT: Final = 128
_REPEAT_DIGITS: Final = len(str(_REPEAT_LIMIT))
_LONGEST: Final = (1 << 63) - 1
_DECIMALS: Final = 6
_OTHERWISE: Final = (
    "xgrammar matches a pattern only against the entire string, without escapes and inner anchors"
)
_LONG_REPEAT: Final = f"xgrammar refuses a repeat bound over {_REPEAT_LIMIT}"
# Of a regex: what xgrammar reads as something else.
_MISREAD: Final = {
    "an escaped ^ that begins a class, which it negates": re.compile(r"(?<!\\)(?:\\\\)*\[\\\^"),
    "an escape by number that a digit or a letter to f follows": re.compile(
        r"(?<!\\)(?:\\\\)*\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})(?=[0-9a-fA-F])"
    ),
    "&&, -- or ~~ in a class": re.compile(r"(?<!\\)(?:\\\\)*\[[^\]]*(?:&&|--|~~)[^\]]*\]"),
}
_HALF: Final = "half of a surrogate pair is not a character; write the character itself"
_SURROGATE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u|u\{|U0000|x\{)[dD][89a-fA-F][0-9a-fA-F]{2}")


def lacks(kind: Kind, value: Any) -> Unsupported | None:
    """Return the first thing that xgrammar does not enforce; see Library."""
    if kind == "json":
        return first(_RULES, places(value))
    if kind == "regex" and _repeats_too_often(value):
        return Unsupported(None, _LONG_REPEAT)
    if kind in {"regex", "grammar"} and _SURROGATE.search(value):
        return Unsupported(None, _HALF)
    misread = (what for what, text in _MISREAD.items() if kind == "regex" and text.search(value))
    if (what := next(misread, None)) is not None:
        return Unsupported(None, f"xgrammar misreads {what}: write it otherwise, or use guidance")
    if kind == "grammar" and is_lark(value):
        return Unsupported(None, "xgrammar reads only EBNF, and this is Lark; use guidance")
    return None


def _is_ruled_alone(place: Place, _value: Any = None) -> bool:
    """Return whether one keyword is read, and a constraint beside it is not."""
    schema = place.schema
    ruler = next((keyword for keyword in _RULERS if keyword in schema), None)
    beside = schema.keys() & CONSTRAINTS - {ruler}
    if ruler is None or not beside:
        return False
    if ruler in ("anyOf", "allOf") and beside == {"type"}:
        branches = [Place(ROOT, {} if one is True else one) for one in schema[ruler] if one is not False]
        return not all(branch.types() and branch.types() <= place.types() for branch in branches)
    return True


def _is_untyped(place: Place, _value: Any) -> bool:
    return not place.types() and not _is_ruled_alone(place)


def _is_written_otherwise(_place: Place, value: Any) -> bool:
    return any(abs(number) > _LONGEST or number != int(number) for number in numbers(value))


def _is_open(place: Place, _names: Any) -> bool:
    schema = place.schema
    others = (schema.get(keyword, False) for keyword in ("additionalProperties", "patternProperties"))
    is_short = schema.get("minProperties", 0) > len({*schema["properties"], *schema.get("required", ())})
    return is_short or any(other is not False for other in others)


def _repeats_too_often(pattern: str) -> bool:
    """Return whether a pattern has a repeat bound that xgrammar's compiler refuses."""
    bounds = (bound.lstrip("0") for match in _REPEAT.finditer(pattern) for bound in match.groups(""))
    # Python reads no number of thousands of digits.
    return any(len(bound) > _REPEAT_DIGITS or int(bound or 0) > _REPEAT_LIMIT for bound in bounds)


_RULES: Final = (
    Rule(["multipleOf"], lambda *_: True, "xgrammar does not enforce it"),
    Rule(_OF_TYPE, _is_untyped, "xgrammar enforces it only with `type` in the same schema"),
    Rule(_RULERS, _is_ruled_alone, "xgrammar ignores the other keywords of this schema"),
    Rule(["properties"], _is_open, "xgrammar accepts a name with escapes as an additional property"),
    Rule(
        ["required"],
        lambda place, names: not place.schema.get("properties", {}).keys() >= set(names),
        "xgrammar enforces only names that are in properties",
    ),
    Rule(["const", "enum"], _is_written_otherwise, "xgrammar writes the number with other digits"),
    Rule(
        BOUNDS,
        lambda _, bound: bound != round(bound, _DECIMALS),
        f"xgrammar rounds bounds to {_DECIMALS} decimals",
    ),
    Rule(["allOf"], lambda _, parts: len(parts) > 1, "xgrammar does not enforce allOf with several branches"),
    Rule(["format"], lambda _, name: name not in _FORMATS, "xgrammar does not enforce the format"),
    Rule(
        ["format", "pattern"],
        lambda place, _: has_lengths(place.schema) or {"format", "pattern"} <= place.schema.keys(),
        "xgrammar enforces only one of pattern, format and lengths",
    ),
    Rule(["pattern"], lambda _, pattern: not _PLAIN.fullmatch(pattern), _OTHERWISE),
    Rule(["pattern"], lambda _, pattern: _repeats_too_often(pattern), _LONG_REPEAT),
    Rule(["patternProperties"], lambda _, parts: not all(map(_PLAIN.fullmatch, parts)), _OTHERWISE),
    Rule(
        ["patternProperties"],
        lambda place, parts: "properties" in place.schema or len(parts) > 1,
        "xgrammar does not enforce it together with the other keywords",
    ),
)
