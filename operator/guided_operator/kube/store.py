"""The cache of the reflectors: every watched object, by the GuidedModel that it is or belongs to by label."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from guided_contract import names
from guided_operator.kube.kinds import MODEL, POD, Kind
from guided_operator.kube.queue import Key

Object = dict[str, Any]


class Name(NamedTuple):
    """Namespace and name of a watched object."""

    namespace: str
    name: str


class Store:
    """Watched objects, projected. Each write returns the keys of the GuidedModels that it concerns.

    A projection that is no view is kept as JSON, a fifth of the size of what it is parsed to.
    """

    def __init__(self) -> None:
        self._owners: dict[str, dict[Name, Key]] = {}
        self._items: dict[Key, dict[str, dict[str, Any]]] = {}
        self._doubted: set[Key] = set()

    def items(self, key: Key, kind: Kind) -> Mapping[str, Any]:
        """Return a model's objects of one kind by name, as they are now; each is parsed when asked for."""
        return _Items(kind, dict(self._items.get(key, {}).get(kind.name, {})))

    def model(self, key: Key) -> Object | None:
        """Return the GuidedModel itself, None if there is none."""
        kept = self._items.get(key, {}).get(MODEL.name, {}).get(key.name)
        return None if kept is None else _content(MODEL, kept)

    def is_doubted(self, key: Key) -> bool:
        """Return whether the GuidedModel may be gone: it lost a child other than a pod since `trust`."""
        return key in self._doubted

    def trust(self, key: Key) -> None:
        """Take note that a GuidedModel was asked for."""
        self._doubted.discard(key)

    def keys(self) -> set[Key]:
        """Return every model that some object belongs to."""
        return set(self._items)

    def put(self, kind: Kind, item: Object) -> set[Key]:
        """Take in a new or changed object; where it cannot be read, nothing has changed."""
        where, kept = name_of(item), _keep(kind, item)
        key = Key(*where) if kind is MODEL else Key(where.namespace, _label(item))
        concerned = {key}
        before = self._owners.get(kind.name, {}).get(where)
        if before is not None and before != key:  # relabelled to another model
            concerned |= self._remove(kind, where)
        self._owners.setdefault(kind.name, {})[where] = key
        named = self._items.setdefault(key, {}).setdefault(kind.name, {})
        if kind.newest_alone:
            kept = _newest_alone(named, where.name, kept)
        if named.get(where.name) == kept:  # what has changed is of no concern to anybody
            return set()
        named[where.name] = kept
        return concerned

    def drop(self, kind: Kind, item: Object) -> set[Key]:
        """Forget an object."""
        return self._remove(kind, name_of(item))

    def retain(self, kind: Kind, listed: Iterable[Name], namespace: str = "") -> set[Key]:
        """Drop objects missing from a full list of `namespace` ("" = all)."""
        known = {name for name in self._owners.get(kind.name, {}) if namespace in ("", name.namespace)}
        concerned: set[Key] = set()
        for where in known.difference(listed):
            concerned |= self._remove(kind, where)
        return concerned

    def _remove(self, kind: Kind, where: Name) -> set[Key]:
        key = self._owners.get(kind.name, {}).pop(where, None)
        if key is None:
            return set()
        by_kind = self._items[key]
        by_kind[kind.name].pop(where.name)
        if kind is MODEL:
            self._doubted.discard(key)
        elif kind is not POD and MODEL.name in by_kind:
            self._doubted.add(key)
        if not any(by_kind.values()):
            del self._items[key]
        return {key}


class _Items(Mapping[str, Any]):
    def __init__(self, kind: Kind, kept: Mapping[str, Any]) -> None:
        self._kind = kind
        self._kept = kept

    def __getitem__(self, name: str) -> Any:
        return _content(self._kind, self._kept[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def _keep(kind: Kind, item: Object) -> Any:
    kept = kind.project(item)
    return kept if kind.view else msgspec.json.encode(kept)


def _content(kind: Kind, kept: Any) -> Any:
    return kept if kind.view else msgspec.json.decode(kept)


def _newest_alone(named: dict[str, Any], name: str, kept: Any) -> Any:
    """Take the data from all but the newest of several objects, one of which is about to be `kept`."""
    numbers = {each: _revision(msgspec.json.decode(one)) for each, one in named.items() if each != name}
    item = msgspec.json.decode(kept)
    newest = max(numbers, key=lambda each: numbers[each], default=None)
    if newest is None:
        return kept
    if _revision(item) < numbers[newest]:
        return _without_data(item)
    named[newest] = _without_data(msgspec.json.decode(named[newest]))
    return kept


def _revision(item: Object) -> int:
    number = item.get("revision")
    return number if isinstance(number, int) else 0


def _without_data(item: Object) -> bytes:
    return msgspec.json.encode({field: value for field, value in item.items() if field != "data"})


def _label(item: Object) -> str:
    label: str = (item["metadata"].get("labels") or {}).get(names.LABEL_NAME, "")
    return label


def name_of(item: Object) -> Name:
    """Return where an object is."""
    return Name(item["metadata"]["namespace"], item["metadata"]["name"])
