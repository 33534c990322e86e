"""ConfigMaps that GuidedModels' grammars are in: read when a model is looked at, and followed for it.

Nothing of them is kept, and no more is read at a time than the pods could mount. What a model refers to is
remembered, so that a change of one queues the model.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from guided_contract import grammar_files
from guided_operator.builders import Sources
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ObjectNotFound
from guided_operator.kube.apiserver import Api, Object
from guided_operator.kube.kinds import Kind
from guided_operator.kube.queue import Key
from guided_operator.kube.store import Name


class GrammarSources:
    """What a reflector tells of changes, and where an observer reads.

    Parameters
    ----------
    api
        Reads the ConfigMaps.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._references: dict[Key, frozenset[str]] = {}

    async def read(self, key: Key, wanted: Mapping[str, Collection[str] | None]) -> Sources:
        """Return these keys of ConfigMaps of the model's namespace, which the model now refers to.

        Parameters
        ----------
        wanted
            The keys of each ConfigMap; None: all. Of named ones, those that no longer have room beside the
            others are None.
        """
        self._references[key] = frozenset(wanted)  # before reading: no change in between goes unheard
        if not self._references[key]:
            del self._references[key]
            return {}
        room = grammar_files.MAX_BYTES
        found: dict[str, Mapping[str, str | None] | None] = {}
        for name, keys in sorted(wanted.items()):  # one by one: each may have a megabyte
            data = await self._read(key.namespace, name)
            if data is None or keys is None:
                found[name] = data
                continue
            kept = found[name] = dict[str, str | None]()
            for each in sorted(data.keys() & keys):
                size = len(data[each].encode())
                kept[each] = data[each] if size <= room else None
                room -= size if size <= room else 0
        return found

    def forget(self, key: Key) -> None:
        """Note that a model is gone."""
        self._references.pop(key, None)

    async def _read(self, namespace: str, name: str) -> Mapping[str, str] | None:
        try:
            item = await self._api.read(kinds.GRAMMAR_SOURCE.path(namespace, name))
        except ObjectNotFound:
            return None
        data: Mapping[str, Any] = item.get("data") or {}
        return data

    def put(self, kind: Kind, item: Object) -> set[Key]:
        """Return the models that refer to a ConfigMap."""
        del kind
        metadata = item["metadata"]
        return {
            key
            for key, names in self._references.items()
            if key.namespace == metadata["namespace"] and metadata["name"] in names
        }

    def drop(self, kind: Kind, item: Object) -> set[Key]:
        """Return the models that refer to a ConfigMap that has gone."""
        return self.put(kind, item)

    def retain(self, kind: Kind, listed: Iterable[Name], namespace: str = "") -> set[Key]:
        """Return every model that refers to some: any of them may have changed while nobody watched."""
        del kind, listed
        return {key for key in self._references if namespace in ("", key.namespace)}

    def keys(self) -> set[Key]:
        """Return every model that refers to a ConfigMap."""
        return set(self._references)
