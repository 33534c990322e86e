"""What each library makes of each keyword, as seen: `make schema-table` writes this file; do not edit it.

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
# Of the keywords about one type of values, that type.
TYPES: Final[dict[str, str]] = {
    "additionalItems": "array",
    "additionalProperties": "object",
    "contains": "array",
    "dependencies": "object",
    "dependentRequired": "object",
    "dependentSchemas": "object",
    "exclusiveMaximum": "number",
    "exclusiveMinimum": "number",
    "items": "array",
    "maxContains": "array",
    "maxItems": "array",
    "maxLength": "string",
    "maxProperties": "object",
    "maximum": "number",
    "minContains": "array",
    "minItems": "array",
    "minLength": "string",
    "minProperties": "object",
    "minimum": "number",
    "multipleOf": "number",
    "pattern": "string",
    "patternProperties": "object",
    "prefixItems": "array",
    "properties": "object",
    "propertyNames": "object",
    "required": "object",
    "unevaluatedItems": "array",
    "unevaluatedProperties": "object",
    "uniqueItems": "array",
}
KEYWORDS: Final[dict[Backend, dict[str, Seen]]] = {
    "xgrammar": {
        "$dynamicRef": Seen("ignored", "ignored"),
        "$ref": Seen("partly", "partly"),
        "additionalItems": Seen("enforced", "enforced"),
        "additionalProperties": Seen("enforced", "partly"),
        "allOf": Seen("partly", "ignored"),
        "anyOf": Seen("partly", "enforced"),
        "const": Seen("enforced", "unknown"),
        "contains": Seen("ignored", "ignored"),
        "dependencies": Seen("ignored", "partly"),
        "dependentRequired": Seen("ignored", "partly"),
        "dependentSchemas": Seen("ignored", "ignored"),
        "else": Seen("ignored", "ignored"),
        "enum": Seen("enforced", "unknown"),
        "exclusiveMaximum": Seen("ignored", "enforced"),
        "exclusiveMinimum": Seen("ignored", "enforced"),
        "if": Seen("ignored", "ignored"),
        "items": Seen("enforced", "enforced"),
        "maxContains": Seen("ignored", "ignored"),
        "maxItems": Seen("ignored", "enforced"),
        "maxLength": Seen("ignored", "enforced"),
        "maxProperties": Seen("ignored", "enforced"),
        "maximum": Seen("ignored", "enforced"),
        "minContains": Seen("ignored", "ignored"),
        "minItems": Seen("ignored", "enforced"),
        "minLength": Seen("ignored", "enforced"),
        "minProperties": Seen("ignored", "enforced"),
        "minimum": Seen("ignored", "enforced"),
        "multipleOf": Seen("ignored", "ignored"),
        "not": Seen("partly", "ignored"),
        "oneOf": Seen("partly", "ignored"),
        "pattern": Seen("ignored", "enforced"),
        "patternProperties": Seen("ignored", "partly"),
        "prefixItems": Seen("enforced", "enforced"),
        "properties": Seen("partly", "partly"),
        "propertyNames": Seen("ignored", "enforced"),
        "required": Seen("partly", "partly"),
        "then": Seen("ignored", "ignored"),
        "type": Seen("enforced", "unknown"),
        "unevaluatedItems": Seen("partly", "unknown"),
        "unevaluatedProperties": Seen("partly", "unknown"),
        "uniqueItems": Seen("partly", "partly"),
    },
    "guidance": {
        "$dynamicRef": Seen("refused", "refused"),
        "$ref": Seen("enforced", "enforced"),
        "additionalItems": Seen("enforced", "enforced"),
        "additionalProperties": Seen("enforced", "enforced"),
        "allOf": Seen("enforced", "enforced"),
        "anyOf": Seen("enforced", "enforced"),
        "const": Seen("enforced", "unknown"),
        "contains": Seen("refused", "refused"),
        "dependencies": Seen("refused", "refused"),
        "dependentRequired": Seen("refused", "refused"),
        "dependentSchemas": Seen("refused", "refused"),
        "else": Seen("refused", "refused"),
        "enum": Seen("enforced", "unknown"),
        "exclusiveMaximum": Seen("enforced", "enforced"),
        "exclusiveMinimum": Seen("enforced", "enforced"),
        "if": Seen("refused", "refused"),
        "items": Seen("enforced", "enforced"),
        "maxContains": Seen("refused", "refused"),
        "maxItems": Seen("enforced", "enforced"),
        "maxLength": Seen("enforced", "enforced"),
        "maxProperties": Seen("enforced", "enforced"),
        "maximum": Seen("enforced", "enforced"),
        "minContains": Seen("refused", "refused"),
        "minItems": Seen("enforced", "enforced"),
        "minLength": Seen("enforced", "enforced"),
        "minProperties": Seen("enforced", "enforced"),
        "minimum": Seen("enforced", "enforced"),
        "multipleOf": Seen("enforced", "enforced"),
        "not": Seen("refused", "refused"),
        "oneOf": Seen("enforced", "refused"),
        "pattern": Seen("enforced", "enforced"),
        "patternProperties": Seen("enforced", "enforced"),
        "prefixItems": Seen("enforced", "enforced"),
        "properties": Seen("enforced", "enforced"),
        "propertyNames": Seen("refused", "refused"),
        "required": Seen("enforced", "enforced"),
        "then": Seen("refused", "refused"),
        "type": Seen("enforced", "unknown"),
        "unevaluatedItems": Seen("refused", "unknown"),
        "unevaluatedProperties": Seen("refused", "unknown"),
        "uniqueItems": Seen("refused", "refused"),
    },
}
