"""What the reflectors know: every watched object, by the GuidedModel whose label it carries."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from guided_contract import names
from guided_operator.kinds import Kind
from guided_operator.queue import Key

Object = dict[str, Any]


class Name(NamedTuple):
    """Namespace and name of a watched object."""

    namespace: str
    name: str


class Store:
    """Watched objects, projected. Each write returns the keys of the GuidedModels that it concerns."""

    def __init__(self) -> None:
        self._owners: dict[str, dict[Name, Key]] = {}
        self._items: dict[Key, dict[str, dict[str, Any]]] = {}

    def items(self, key: Key, kind: Kind) -> Mapping[str, Any]:
        """Return a model's objects of one kind by name."""
        return self._items.get(key, {}).get(kind.name, {})

    def keys(self) -> set[Key]:
        """Return every model that some object belongs to."""
        return set(self._items)

    def put(self, kind: Kind, item: Object) -> set[Key]:
        """Take in a new or changed object."""
        where = _name(item)
        key = Key(where.namespace, item["metadata"].get("labels", {}).get(names.LABEL_NAME, ""))
        concerned = {key}
        before = self._owners.get(kind.name, {}).get(where)
        if before is not None and before != key:  # relabelled to another model
            concerned |= self._remove(kind, where)
        self._owners.setdefault(kind.name, {})[where] = key
        self._items.setdefault(key, {}).setdefault(kind.name, {})[where.name] = kind.project(item)
        return concerned

    def drop(self, kind: Kind, item: Object) -> set[Key]:
        """Forget an object."""
        return self._remove(kind, _name(item))

    def replace(self, kind: Kind, items: Iterable[Object]) -> set[Key]:
        """Take in a whole list: what is not in it is gone, though no event said so."""
        listed = list(items)
        vanished = set(self._owners.get(kind.name, {})) - {_name(item) for item in listed}
        concerned: set[Key] = set()
        for where in vanished:
            concerned |= self._remove(kind, where)
        for item in listed:
            concerned |= self.put(kind, item)
        return concerned

    def _remove(self, kind: Kind, where: Name) -> set[Key]:
        key = self._owners.get(kind.name, {}).pop(where, None)
        if key is None:
            return set()
        by_kind = self._items[key]
        by_kind[kind.name].pop(where.name)
        if not any(by_kind.values()):
            del self._items[key]
        return {key}


def _name(item: Object) -> Name:
    return Name(item["metadata"]["namespace"], item["metadata"]["name"])
