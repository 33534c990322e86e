"""The CRD's rules in CEL, for a manifest that no API server has seen."""

import functools
from collections.abc import Iterator
from typing import Any, Final

from cel_expr_python import cel

from guided_operator.api import GuidedModel, Problem
from guided_operator.api.crd import Schema, root_schema

_schema: Final = functools.cache(root_schema)
_compiled: Final = functools.cache(cel.NewEnv(variables={"self": cel.Type.DYN}).compile)


def broken_rules(gm: GuidedModel) -> Iterator[Problem]:
    """Yield what the API server would refuse by a rule; rules of a change are not asked."""
    schema = _schema()
    yield from _broken(schema, _typed(schema, gm.model_dump(by_alias=True, exclude_none=True)), "")


def _typed(schema: Schema, value: Any) -> Any:
    """Return what has a schema of a value: neither the server's CEL nor this one sees more."""
    if isinstance(value, list):
        return [_typed(schema["items"], item) for item in value]
    known = schema.get("properties", {})
    if not isinstance(value, dict) or not (known or "x-kubernetes-preserve-unknown-fields" in schema):
        return value
    return {name: _typed(known[name], part) for name, part in value.items() if name in known}


def _broken(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    for rule in schema.get("x-kubernetes-validations", ()):
        of_change = "oldSelf" in rule["rule"]
        if not of_change and _compiled(rule["rule"]).eval(data={"self": value}).value() is not True:
            field = f"{path}{rule.get('fieldPath', '')}".removeprefix(".")
            yield Problem(field or "metadata", rule["message"])
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _broken(schema.get("properties", {}).get(name, {}), part, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _broken(schema["items"], item, f"{path}[{index}]")
