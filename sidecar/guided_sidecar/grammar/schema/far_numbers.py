"""Bounds and counts that are further out than libraries count."""

from decimal import Decimal
from typing import Any, Final

from guided_contract.errors import ErrorCode
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema.faults import fault, unsupported
from guided_sidecar.grammar.schema.origins import Said

_MOST_NUMBER: Final = {1: 1 << 53, -1: 1 << 53}
_MOST_INTEGER: Final = {1: (1 << 63) - 1, -1: 1 << 62}  # by its sign: near -2^63 llguidance does not end
_TOO_FAR: Final = f"numbers beyond {1 << 53} and integers beyond {1 << 62} are not supported"
_MOST_STATES: Final = 1 << 15
_SIGNS: Final = {"maximum": 1, "exclusiveMaximum": 1, "minimum": -1, "exclusiveMinimum": -1}
_MOST_ITEMS: Final = 1 << 14  # for each of which llguidance keeps 3 KB, in each rank


def bound(writer: Any, said: Said, written: dict[str, Any], path: JsonPath) -> None:
    """Bring the bounds and counts of a schema to what is enforced, or refuse them."""
    if written.get("minItems", 0) > _MOST_ITEMS:
        reason = f"more than {_MOST_ITEMS} items are not supported"
        raise fault(str(JsonPath(path, "minItems")), reason, ErrorCode.GRAMMAR_TOO_LARGE)
    if written.get("maxItems", 0) > _MOST_ITEMS:
        written["maxItems"] = _MOST_ITEMS
        writer.narrow(JsonPath(path, "maxItems"))
    if "multipleOf" in written:
        _multiple(writer, written, JsonPath(path, "multipleOf"))
    most = _MOST_INTEGER if written.get("type") == "integer" else _MOST_NUMBER
    for keyword, sign in _SIGNS.items():
        value = sign * written.get(keyword, 0)
        if value > most[sign]:
            written[keyword] = sign * most[sign]
            writer.narrow(said.at(path, keyword))
        elif value < -most[-sign]:
            raise unsupported(said.at(path, keyword), _TOO_FAR)


def _multiple(writer: Any, written: dict[str, Any], path: JsonPath) -> None:
    if written["multipleOf"] == 1 and written.get("type") in ("integer", "number"):
        written["type"] = "integer"
        del written["multipleOf"]
        return
    # Without its decimal point: a library keeps a state for each remainder of it.
    _, digits, exponent = Decimal(str(written["multipleOf"])).normalize().as_tuple()
    if int("".join(map(str, digits)) + max(int(exponent), 0) * "0") > _MOST_STATES:
        raise unsupported(path, "it has too many digits")
    if written.get("maximum", 0) < 0 or written.get("exclusiveMaximum", 1) <= 0:
        raise unsupported(path, "multipleOf is not supported for negative numbers only")
    if all(written.get(keyword, -1) < 0 for keyword in ("minimum", "exclusiveMinimum")):
        writer.narrow(path)
