"""The keys that vLLM's own request classes know, by which others in a body are told to be ignored."""

import functools
import inspect
from collections.abc import Iterable
from typing import Any, get_type_hints


def ignored(app: Any, route: str, keys: Iterable[str]) -> list[str]:
    """Return the keys of a body that vLLM's class of the route does not know."""
    known = _known(app, route)
    return [key for key in keys if key not in known] if known else []


@functools.lru_cache(64)
def _known(app: Any, route: str) -> frozenset[str]:
    """Return the keys that the class of a route's body knows; empty where it has none."""
    for handler in _handlers(app, route):
        try:
            types = get_type_hints(handler).values()
        except (NameError, TypeError):  # imported for type checkers alone
            continue
        for one in types:
            fields = getattr(one, "model_fields", None) if inspect.isclass(one) else None
            if fields:
                aliases = (field.alias for field in fields.values() if field.alias)
                return frozenset((*fields, *aliases))
    return frozenset()


def _handlers(app: Any, route: str) -> Iterable[Any]:
    for one in getattr(app, "routes", ()):
        if getattr(one, "path", "") == route and "POST" in (getattr(one, "methods", None) or ()):
            yield one.endpoint
