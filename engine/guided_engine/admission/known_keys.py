"""The keys that vLLM's own request classes know, by which others in a body are told to be ignored."""

import functools
from collections.abc import Iterable
from typing import Any


def ignored(app: Any, route: str, keys: Iterable[str]) -> list[str]:
    """Return the keys of a body that vLLM's class of the route does not know."""
    known = _known(app, route)
    return [key for key in keys if key not in known] if known else []


@functools.lru_cache(64)
def _known(app: Any, route: str) -> frozenset[str]:
    """Return the keys that the class of a route's body knows; empty where it has none."""
    for one in getattr(app, "routes", ()):
        body = getattr(one, "body_field", None) if getattr(one, "path", "") == route else None
        fields = getattr(body.field_info.annotation, "model_fields", None) if body else None
        if fields:
            return frozenset((*fields, *(field.alias for field in fields.values() if field.alias)))
    return frozenset()
