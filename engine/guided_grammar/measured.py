"""What each library makes of each keyword of the normal form, as seen; `make schema-table` writes this.

JSON-Schema-Test-Suite's cases, draft 2020-12 and 7, through each library alone; first as they are, most of
them without a type, then with the type that the keyword is about, and further properties and items allowed.

enforced: of what the library takes, it generates nothing invalid. ignored: in every case that it takes it
generates something invalid. partly: in some. refused: it takes none. unknown: there is no such case.
"""

from typing import Final, Literal, NamedTuple

from guided_contract.wire import Backend

Made = Literal["enforced", "ignored", "partly", "refused", "unknown"]


class Seen(NamedTuple):
    """What a library makes of a keyword without a type beside it, and with one."""

    untyped: Made
    typed: Made


VERSIONS: Final[dict[str, str]] = {"llguidance": "1.7.6", "xgrammar": "0.2.8"}
KEYWORDS: Final[dict[Backend, dict[str, Seen]]] = {
    "xgrammar": {
        "$ref": Seen("partly", "partly"),
        "additionalProperties": Seen("enforced", "partly"),
        "allOf": Seen("partly", "ignored"),
        "anyOf": Seen("partly", "enforced"),
        "const": Seen("enforced", "unknown"),
        "enum": Seen("enforced", "unknown"),
        "exclusiveMaximum": Seen("ignored", "enforced"),
        "exclusiveMinimum": Seen("ignored", "enforced"),
        "items": Seen("enforced", "enforced"),
        "maxItems": Seen("ignored", "enforced"),
        "maxLength": Seen("ignored", "enforced"),
        "maxProperties": Seen("ignored", "enforced"),
        "maximum": Seen("ignored", "enforced"),
        "minItems": Seen("ignored", "enforced"),
        "minLength": Seen("ignored", "enforced"),
        "minProperties": Seen("ignored", "enforced"),
        "minimum": Seen("ignored", "enforced"),
        "multipleOf": Seen("ignored", "ignored"),
        "pattern": Seen("ignored", "enforced"),
        "patternProperties": Seen("ignored", "partly"),
        "prefixItems": Seen("enforced", "enforced"),
        "properties": Seen("partly", "partly"),
        "required": Seen("partly", "partly"),
        "type": Seen("enforced", "unknown"),
        "uniqueItems": Seen("partly", "partly"),
    },
    "guidance": {
        "$ref": Seen("enforced", "enforced"),
        "additionalProperties": Seen("enforced", "enforced"),
        "allOf": Seen("enforced", "enforced"),
        "anyOf": Seen("enforced", "enforced"),
        "const": Seen("enforced", "unknown"),
        "enum": Seen("enforced", "unknown"),
        "exclusiveMaximum": Seen("enforced", "enforced"),
        "exclusiveMinimum": Seen("enforced", "enforced"),
        "items": Seen("enforced", "enforced"),
        "maxItems": Seen("enforced", "enforced"),
        "maxLength": Seen("enforced", "enforced"),
        "maxProperties": Seen("enforced", "enforced"),
        "maximum": Seen("enforced", "enforced"),
        "minItems": Seen("enforced", "enforced"),
        "minLength": Seen("enforced", "enforced"),
        "minProperties": Seen("enforced", "enforced"),
        "minimum": Seen("enforced", "enforced"),
        "multipleOf": Seen("enforced", "enforced"),
        "pattern": Seen("enforced", "enforced"),
        "patternProperties": Seen("enforced", "enforced"),
        "prefixItems": Seen("enforced", "enforced"),
        "properties": Seen("enforced", "enforced"),
        "required": Seen("enforced", "enforced"),
        "type": Seen("enforced", "unknown"),
        "uniqueItems": Seen("refused", "refused"),
    },
}
