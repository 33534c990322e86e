"""The suite's cases once more with a type in each schema, and with further properties and items allowed.

Most of the suite's schemas name no `type`, so `{"maxItems": 2}` also takes any text, and libraries read such
schemas otherwise than those with one. And xgrammar generates no property or item that a schema does not speak
of, which would hide that it ignores what the schema asks of them.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import jsonschema
import referencing

from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import OF_TYPE
from schemasuite.cases import Case, Instance

_OPEN: Final = {"array": {"items": True}, "object": {"additionalProperties": True}}
_UNEVALUATED: Final = ("unevaluatedItems", "unevaluatedProperties")


def typed(cases: Iterator[Case]) -> Iterator[Case]:
    """Yield the cases that change, their instances judged anew by jsonschema."""
    for case in cases:
        schema = _typed(case.schema)
        if schema == case.schema or case.keyword in _UNEVALUATED:
            continue  # of the latter, nothing would be left unevaluated
        found = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        judge = found(schema, registry=referencing.Registry())  # which fetches nothing
        try:
            instances = tuple(Instance(one.value, judge.is_valid(one.value)) for one in case.instances)
        except (referencing.exceptions.Unresolvable, jsonschema.exceptions.SchemaError):
            continue
        yield dataclasses.replace(case, schema=schema, instances=instances)


def _typed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    inner = {keyword: _inner(keyword, value) for keyword, value in schema.items()}
    types = {OF_TYPE[keyword] for keyword in schema if keyword in OF_TYPE}
    if "type" in schema or len(types) != 1:
        return inner
    kind = types.pop()
    opened = {} if "additionalItems" in schema or "prefixItems" in schema else _OPEN.get(kind, {})
    return {"type": kind, **opened, **inner}


def _inner(keyword: str, value: Any) -> Any:
    if keyword in subschemas.MAPS and isinstance(value, dict):
        return {name: _typed(part) for name, part in value.items()}
    if keyword in subschemas.LISTS and isinstance(value, list):
        return [_typed(part) for part in value]
    return _typed(value) if keyword in subschemas.SINGLE else value
