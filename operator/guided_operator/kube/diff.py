"""Whether a live object already is what is wanted: leaf by leaf, lists matched by key.

The API server fills in defaults and others add fields of their own; only what we want is looked at.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

# Keys of Kubernetes' list-maps, the most telling first: two mounts may share a volume's name, not a path.
_LIST_KEYS: Final = ("mountPath", "containerPort", "port", "uid", "name", "topologyKey")
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


def digest(wanted: Any) -> str:
    """Return a short hash of a manifest: the same for the same content, whatever the order of keys."""
    return hashlib.sha256(msgspec.json.encode(wanted, order="sorted")).hexdigest()[:16]


def differences(wanted: Any, live: Any) -> list[str]:
    """Return the path of each wanted leaf that the live object does not have so.

    Empty and absent are the same. Quantities must be in their canonical form.
    """
    # Most of a pass that has nothing to do is spent here: a path is made only where there is a difference.
    if isinstance(wanted, dict) and (live is None or isinstance(live, dict)):
        found = []
        for field, value in wanted.items():
            other = live.get(field) if live else None
            if not (isinstance(value, str) and value == other):
                found += [f".{field}{path}" for path in differences(value, other)]
        return found
    if isinstance(wanted, list) and isinstance(live, list):
        return _list_differences(wanted, live)
    if wanted == live and isinstance(wanted, bool) == isinstance(live, bool):
        return []
    return [] if wanted in _EMPTY and live in _EMPTY else [""]


def _list_differences(wanted: Sequence[Any], live: Sequence[Any]) -> list[str]:
    key = _list_key(wanted)
    if key is None and len(wanted) != len(live):
        return [""]
    if key is None:
        pairs = ((str(index), *pair) for index, pair in enumerate(zip(wanted, live, strict=True)))
    else:
        by_key = {str(item[key]): item for item in live if isinstance(item, dict) and key in item}
        pairs = ((item[key], item, by_key.get(str(item[key]))) for item in wanted)
    return [f"[{name}]{path}" for name, item, other in pairs for path in differences(item, other)]


def _list_key(items: Sequence[Any]) -> str | None:
    """Return the field that tells the items of this list apart, or None: an atomic list."""
    if not items or not all(isinstance(item, dict) for item in items):
        return None
    for key in _LIST_KEYS:
        values = {str(item[key]) for item in items if key in item}
        if len(values) == len(items):
            return key
    return None
