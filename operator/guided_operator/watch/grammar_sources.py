"""ConfigMaps that GuidedModels' grammars are in: read when a model is looked at, and followed for it.

Nothing of them is kept. What a model refers to is remembered, so that a change of one queues the model.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from guided_operator.builders import Sources
from guided_operator.kube import kinds
from guided_operator.kube.apiserver import Api, Object, ObjectNotFound
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

    async def read(self, key: Key, names: Iterable[str]) -> Sources:
        """Return these ConfigMaps of the model's namespace, which the model now refers to."""
        self._references[key] = frozenset(names)  # before reading: no change in between goes unheard
        if not self._references[key]:
            del self._references[key]
            return {}
        wanted = sorted(self._references[key])
        found = await asyncio.gather(*(self._read(key.namespace, name) for name in wanted))
        return dict(zip(wanted, found, strict=True))

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
