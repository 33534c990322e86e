"""Whether a live object already is what is wanted: leaf by leaf, lists matched by key.

The API server fills in defaults and others add fields of their own; only what we want is looked at.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

# Keys of Kubernetes' list-maps, the most telling first: two mounts may share a volume's name, not a path.
_LIST_KEYS: Final = ("mountPath", "containerPort", "port", "uid", "name", "topologyKey")
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


def digest(wanted: Any) -> str:
    """Return a short hash of a manifest: the same for the same content, whatever the order of keys."""
    text = json.dumps(wanted, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(wanted: Any, live: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each wanted leaf that the live object does not have so.

    Empty and absent are the same. Quantities must be in their canonical form.
    """
    if wanted in _EMPTY and live in _EMPTY:
        return
    if isinstance(wanted, dict) and isinstance(live, dict):
        for field, value in wanted.items():
            yield from differences(value, live.get(field), f"{path}.{field}")
    elif isinstance(wanted, list) and isinstance(live, list):
        yield from _list_differences(wanted, live, path)
    elif isinstance(wanted, dict) and live is None:
        for field, value in wanted.items():
            yield from differences(value, None, f"{path}.{field}")
    elif wanted != live or isinstance(wanted, bool) != isinstance(live, bool):
        yield path


def _list_differences(wanted: Sequence[Any], live: Sequence[Any], path: str) -> Iterator[str]:
    key = _list_key(wanted)
    if key is not None:
        by_key = {item[key]: item for item in live if isinstance(item, dict) and key in item}
        for item in wanted:
            yield from differences(item, by_key.get(item[key]), f"{path}[{item[key]}]")
    elif len(wanted) != len(live):
        yield path
    else:
        for index, (item, other) in enumerate(zip(wanted, live, strict=True)):
            yield from differences(item, other, f"{path}[{index}]")


def _list_key(items: Sequence[Any]) -> str | None:
    """Return the field that tells the items of this list apart, or None: an atomic list."""
    if not items or not all(isinstance(item, dict) for item in items):
        return None
    for key in _LIST_KEYS:
        values = {str(item[key]) for item in items if key in item}
        if len(values) == len(items):
            return key
    return None
