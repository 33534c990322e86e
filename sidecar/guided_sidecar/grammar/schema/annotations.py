"""Takes out of a schema what says nothing about its instances, so that no library takes it for more.

Each library reads some of it in its own way: an object with an unknown keyword and no `properties` was `{}`
alone with one of them and anything with the other, and a format that one of them does not know was a refusal.
"""

from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import CONSTRAINTS

# Formats of the specification. It calls others annotations, as OpenAPI's `int32` and pydantic's `password`.
_FORMATS: Final = frozenset(
    [
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "idn-email",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "iri",
        "iri-reference",
        "json-pointer",
        "regex",
        "relative-json-pointer",
        "time",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
    ]
)
# What a library's own keywords do, a client must not: they switch its checks off.
_PRIVATE: Final = "x-guidance"
_IDENTIFIERS: Final = frozenset(
    [
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$id",
        "$recursiveAnchor",
        "$recursiveRef",
        "$schema",
        "$vocabulary",
    ]
)
_COUNTS: Final = frozenset(["maxContains", "minContains"])
_DEPENDENCIES: Final = frozenset(["dependencies", "dependentRequired"])
_MEANT: Final = (
    frozenset([*CONSTRAINTS, *subschemas.MAPS, *subschemas.SINGLE, *subschemas.LISTS])
    | _IDENTIFIERS
    | _COUNTS
    | _DEPENDENCIES
) - {"contentSchema"}


def drop(schema: Any) -> None:
    """Take annotations out of a checked schema, in place; what a reference leads through stays.

    Raises
    ------
    GuidedError
        grammar_unsupported, with the path of a keyword that only one library knows.
    """
    parts = subschemas.within(schema)
    kept: frozenset[str] | None = None
    for part in parts:
        if _PRIVATE in part:
            raise _private(schema)
        if "format" in part and part["format"] not in _FORMATS:
            del part["format"]
        others = part.keys() - _MEANT
        if others:
            kept = _referred(parts) if kept is None else kept
            for keyword in others - kept:
                del part[keyword]


def _referred(parts: list[dict[str, Any]]) -> frozenset[str]:
    """Return the names on the ways of all references."""
    references = (part["$ref"] for part in parts if isinstance(part.get("$ref"), str))
    return frozenset(name for reference in references for name in subschemas.names(reference))


def _private(schema: Any) -> GuidedError:
    path = subschemas.find(schema, _PRIVATE)
    message = f"{path}: options of one grammar library are not taken from a schema"
    return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=path)
