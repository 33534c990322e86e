"""Bounds and counts that are further out than libraries count."""

from decimal import Decimal
from typing import Final, NamedTuple

from guided_contract.errors import ErrorCode
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema.writing import Schema, Writer, unsupported

_MOST_NUMBER: Final = {1: 1 << 53, -1: 1 << 53}
_MOST_INTEGER: Final = {1: (1 << 63) - 1, -1: 1 << 62}  # by its sign: near -2^63 llguidance does not end
_TOO_FAR: Final = f"numbers beyond {1 << 53} and integers beyond {1 << 62} are not enforced"
_MOST_STATES: Final = 1 << 15
_SIGNS: Final = {"maximum": 1, "exclusiveMaximum": 1, "minimum": -1, "exclusiveMinimum": -1}
_MOST_ITEMS: Final = 1 << 14  # for each of which llguidance keeps 3 KB, in each rank


class Far(NamedTuple):
    """A keyword whose value is too far out, and why it is refused; None: it was moved."""

    keyword: str
    reason: str | None = None
    code: ErrorCode = ErrorCode.GRAMMAR_UNSUPPORTED


def move(part: Schema) -> Far | None:
    """Move bounds that are further out than libraries count; return one that was moved, or cannot be."""
    if part.get("minItems", 0) > _MOST_ITEMS:
        return Far("minItems", f"more than {_MOST_ITEMS} items are not enforced", ErrorCode.GRAMMAR_TOO_LARGE)
    moved = None
    most = _MOST_INTEGER if part.get("type") == "integer" else _MOST_NUMBER
    for keyword, sign in _SIGNS.items():
        value = sign * part.get(keyword, 0)
        if value > most[sign]:
            part[keyword], moved = sign * most[sign], Far(keyword)
        elif value < -most[-sign]:
            return Far(keyword, _TOO_FAR)
    return moved


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
