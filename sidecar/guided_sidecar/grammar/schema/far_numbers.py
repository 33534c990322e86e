"""Bounds and counts that are further out than libraries count."""

from decimal import Decimal
from typing import Final

from guided_contract.errors import ErrorCode
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema.faults import fault
from guided_sidecar.grammar.schema.writing import Schema, Writer, unsupported

_MOST_NUMBER: Final = {1: 1 << 53, -1: 1 << 53}
_MOST_INTEGER: Final = {1: (1 << 63) - 1, -1: 1 << 62}  # by its sign: near -2^63 llguidance does not end
_TOO_FAR: Final = f"numbers beyond {1 << 53} and integers beyond {1 << 62} are not enforced"
_MOST_STATES: Final = 1 << 15
_SIGNS: Final = {"maximum": 1, "exclusiveMaximum": 1, "minimum": -1, "exclusiveMinimum": -1}
_MOST_ITEMS: Final = 1 << 14  # for each of which llguidance keeps 3 KB, in each rank


def move(part: Schema) -> str | None:
    """Move bounds that are further out than libraries count to where they do; return one that cannot be.

    Else return one that was moved.
    """
    if part.get("minItems", 0) > _MOST_ITEMS:
        return "minItems"
    moved = None
    most = _MOST_INTEGER if part.get("type") == "integer" else _MOST_NUMBER
    for keyword, sign in _SIGNS.items():
        value = sign * part.get(keyword, 0)
        if value > most[sign]:
            part[keyword], moved = sign * most[sign], keyword
        elif value < -most[-sign]:
            return keyword
    return moved


def refuse(part: Schema, keyword: str, path: str) -> None:
    """Refuse a bound that `move` returned where it cannot be moved to where libraries count.

    Raises
    ------
    GuidedError
        grammar_unsupported, or grammar_too_large of items.
    """
    if keyword == "minItems":
        raise fault(path, f"more than {_MOST_ITEMS} items are not enforced", ErrorCode.GRAMMAR_TOO_LARGE)
    most = _MOST_INTEGER if part.get("type") == "integer" else _MOST_NUMBER
    if _SIGNS[keyword] * part[keyword] < -most[-_SIGNS[keyword]]:
        raise fault(path, _TOO_FAR, ErrorCode.GRAMMAR_UNSUPPORTED)


def _whole(number: float) -> int:
    """Return a number without its decimal point: a library keeps a state for each remainder of it."""
    _, digits, exponent = Decimal(str(number)).normalize().as_tuple()
    return int("".join(map(str, digits)) + max(int(exponent), 0) * "0")


def count(writer: Writer, written: Schema, path: JsonPath) -> None:
    """Bring counts of items to what is enforced, and multiples; those of 1 are integers."""
    if written.get("maxItems", 0) > _MOST_ITEMS:
        written["maxItems"] = _MOST_ITEMS
        writer.narrow(JsonPath(path, "maxItems"))
    if "multipleOf" not in written:
        return
    if written["multipleOf"] == 1 and written.get("type") in ("integer", "number"):
        written["type"] = "integer"
        del written["multipleOf"]
        return
    if _whole(written["multipleOf"]) > _MOST_STATES:
        raise unsupported(JsonPath(path, "multipleOf"), "it has too many digits to be enforced")
    if written.get("maximum", 0) < 0 or written.get("exclusiveMaximum", 1) <= 0:
        raise unsupported(JsonPath(path, "multipleOf"), "multiples below 0 are not enforced")
    if all(written.get(bound, -1) < 0 for bound in ("minimum", "exclusiveMinimum")):
        writer.narrow(JsonPath(path, "multipleOf"))
