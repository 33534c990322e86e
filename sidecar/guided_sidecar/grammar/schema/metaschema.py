"""Whether a schema plainly meets its metaschema, told in a hundredth of the time that jsonschema takes.

jsonschema follows the metaschema's dynamic references for every keyword: 200 ms for a schema of 20 KB. So it
is asked only where this table does not say yes; what it then says is what counts.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import Place

_Check = Callable[[Any], bool]

_TYPES: Final = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])
_DRAFT_2020: Final = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_7: Final = ("http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-07/schema#")


def is_plainly_met(schema: Any) -> bool:
    """Return True where a schema is certain to meet its metaschema; False says nothing."""
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or not _checks(schema):
        return False
    checks = _checks(schema)
    return not any(_doubtful(part, checks) for part in subschemas.within(schema))


def doubtful(schema: Any) -> Iterator[tuple[Place, str]]:
    """Yield the keywords that may not meet a schema's metaschema, in the schema's order."""
    checks = _checks(schema) if isinstance(schema, dict) else {}
    for place in subschemas.walk(schema):
        for keyword in _doubtful(place.schema, checks):
            yield place, keyword


def _checks(schema: dict[str, Any]) -> Mapping[str, _Check]:
    """Return what a schema's dialect asks of each keyword; nothing is known of other dialects."""
    dialect = schema.get("$schema", _DRAFT_2020)
    if dialect == _DRAFT_2020:
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
