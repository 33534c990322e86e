"""Public schemas: the types of Kubernetes' OpenAPI, as its Python client has them generated."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

from rankbench.instances import Schema

# Smaller ones hold nothing to say, larger ones take xgrammar seconds each to compile.
_LEAST_BYTES: Final = 300
_MOST_BYTES: Final = 6000
_NOTES: Final = frozenset({"title", "description", "default", "examples"})


def component_schemas() -> Iterator[Schema]:
    """Yield the types that are neither tiny nor huge, in the order of their names."""
    return (schema for schema in all_schemas() if len(json.dumps(schema)) <= _MOST_BYTES)


def all_schemas() -> Iterator[Schema]:
    """Yield the types that are not tiny, in the order of their names."""
    from kubernetes.client import models  # noqa: PLC0415 - takes a second, and only this set needs it
    from pydantic import BaseModel  # noqa: PLC0415 - as above

    for module in sorted(info.name for info in pkgutil.iter_modules(models.__path__)):
        content = vars(importlib.import_module(f"{models.__name__}.{module}"))
        for found in content.values():
            if isinstance(found, type) and issubclass(found, BaseModel) and found.__module__.endswith(module):
                schema = _without_notes(found.model_json_schema(by_alias=True))
                if len(json.dumps(schema)) >= _LEAST_BYTES:
                    yield schema


def _without_notes(node: Any, *, is_schema: bool = True) -> Any:
    """Return a schema without the keywords that constrain nothing; `properties` may have such names."""
    if isinstance(node, list):
        return [_without_notes(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if not is_schema or key not in _NOTES}
    return {
        key: _without_notes(value, is_schema=not (is_schema and key in {"properties", "$defs"}))
        for key, value in kept.items()
    }
