"""From typed objects to plain ones."""

from typing import Any


def manifest(child: Any) -> dict[str, Any]:
    """Return a typed object as the plain one that the API server takes: camelCase, nothing that is unset."""
    plain: dict[str, Any] = child.model_dump(by_alias=True, exclude_none=True)
    return plain
