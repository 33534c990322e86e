"""Which keywords of a schema plainly meet its metaschema, told in a hundredth of jsonschema's time.

jsonschema follows the metaschema's dynamic references for every keyword: 200 ms for a schema of 20 KB. So it
is asked only of those of which this table does not say yes; what it then says is what counts.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import Place

_Check = Callable[[Any], bool]

_TYPES: Final = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])
DRAFT_2020: Final = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_7: Final = ("http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-07/schema#")


def doubtful(schema: Any) -> list[tuple[Place, str]] | None:
    """Return the keywords that may not meet a schema's metaschema, in order; None: it may be any of them.

    All others meet it for certain, and no keyword's value bears on another keyword.
    """
    if isinstance(schema, bool):
        return []
    checks = _checks(schema) if isinstance(schema, dict) else {}
    if not checks:
        return None
    if not any(_doubtful(part, checks) for part in subschemas.within(schema)):
        return []  # most often, and told without the ways there
    return [
        (place, keyword) for place in subschemas.walk(schema) for keyword in _doubtful(place.schema, checks)
    ]


def _checks(schema: dict[str, Any]) -> Mapping[str, _Check]:
    """Return what a schema's dialect asks of each keyword; nothing is known of other dialects."""
    dialect = schema.get("$schema", DRAFT_2020)
    if dialect == DRAFT_2020:
        return _CHECKS
    return _CHECKS_7 if dialect in _DRAFT_7 else {}


def _doubtful(part: dict[str, Any], checks: Mapping[str, _Check]) -> list[str]:
    return [
        keyword
        for keyword, value in part.items()
        if (check := checks.get(keyword)) is not None and not check(value)
    ]


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _are_named_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _is(kind: type) -> _Check:
    return lambda value: isinstance(value, kind)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is(str), value)) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return bool(value) and _are_names(value) and _TYPES.issuperset(value)


def _of(check: _Check, *keywords: str) -> dict[str, _Check]:
    return dict.fromkeys(keywords, check)


_CHECKS: Final = {
    **_of(_is_schema, *subschemas.SINGLE),
    **_of(_are_schemas, "allOf", "anyOf", "oneOf", "prefixItems"),
    **_of(_are_named_schemas, *subschemas.MAPS),
    **_of(
        _is(str),
        *("$comment", "$ref", "$schema", "contentEncoding", "contentMediaType", "description", "format"),
        *("pattern", "title"),
    ),
    **_of(_is(bool), "deprecated", "readOnly", "uniqueItems", "writeOnly"),
    **_of(_is(list), "enum", "examples"),
    **_of(_is_number, "exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"),
    **_of(
        _is_count,
        *("maxContains", "maxItems", "maxLength", "maxProperties"),
        *("minContains", "minItems", "minLength", "minProperties"),
    ),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "dependentRequired": lambda value: isinstance(value, dict) and all(map(_are_names, value.values())),
    "required": _are_names,
    "type": _is_type,
    **_of(
        lambda _value: False,
        *("$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef"),
        *("$vocabulary", "dependencies"),
    ),
}
_CHECKS_7: Final = _CHECKS | {"items": lambda value: _is_schema(value) or _are_schemas(value)}
