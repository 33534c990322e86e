"""The GuidedModels of the cluster, from kopf's watch and from what our own writes return.

A watch that broke off lists again and says nothing of what vanished meanwhile. So a model that lost one of
its children is asked for, since the garbage collector takes the children of a model that is gone; and now
and then all names are listed, for those that had none.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from guided_operator.api.logits_processors import LEFT_OUT, is_too_large
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ApiError, ObjectNotFound
from guided_operator.kube.apiserver import Api, Object
from guided_operator.kube.queue import Key
from guided_operator.kube.reflector import PAGE_OBJECTS, page
from guided_operator.kube.store import Name, Store, name_of

logger = logging.getLogger(__name__)

LOOK_S: Final = 600.0
_NAMES: Final = dataclasses.replace(kinds.MODEL, metadata_only=True)


class Models:
    """Keeps the GuidedModels of the store.

    Attributes
    ----------
    broken
        How often the watch broke off.

    Parameters
    ----------
    api, store
        Where names are asked for, and where models are kept.
    enqueue
        Called with each model that has changed or is gone.
    namespaces
        Those that are served; empty: all.
    """

    def __init__(
        self, api: Api, store: Store, enqueue: Callable[[Key], None], namespaces: Sequence[str]
    ) -> None:
        self.broken = 0
        self._api = api
        self._store = store
        self._enqueue = enqueue
        self._namespaces = namespaces or ("",)
        # Resource versions are compared as numbers, which Kubernetes promises since 1.35 and has always kept.
        self._versions: dict[Name, int] = {}
        self._look = asyncio.Event()

    def take(self, event: str | None, item: Object) -> None:
        """Take in an event of the watch; of a list, its type is None."""
        name = name_of(item)
        if _version(item) < self._versions.get(name, 0):
            return  # a write of ours is newer
        if event == "DELETED":
            self._forget(name)
        else:
            self._keep(name, item)

    def take_written(self, item: Object) -> None:
        """Take in what a write of our own to the status returned: the next pass need not wait for the watch.

        It asks for no pass, which would cancel the delay after a fault; what others changed meanwhile does.
        """
        name = name_of(item)
        if not 0 < self._versions.get(name, 0) < _version(item):  # of one that is gone nothing is kept
            return
        key = Key(*name)
        before = self._store.model(key)
        self._versions[name] = _version(item)
        self._store.put(kinds.MODEL, thinned(item))
        if _but_status(before) != _but_status(self._store.model(key)):
            self._enqueue(key)

    async def confirm(self, key: Key) -> None:
        """Read a model from the API server if it may be gone.

        Raises
        ------
        ApiError
            The API server did not say.
        """
        if not self._store.is_doubted(key):
            return
        try:
            item = await self._api.read(kinds.model_path(key.namespace, key.name))
        except ObjectNotFound:
            self._forget(Name(key.namespace, key.name))
        else:
            self.take(None, item)
        self._store.trust(key)

    async def run(self) -> None:
        """Look for models that are gone: now and then, and when `look_soon` says so."""
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            try:
                for namespace in self._namespaces:
                    await self._forget_absent(namespace)
            except ApiError as error:
                logger.warning("GuidedModels cannot be listed: %s", error)

    def look_soon(self) -> None:
        """Have `run` look at once."""
        self._look.set()

    async def _forget_absent(self, namespace: str) -> None:
        listed: set[Name] = set()
        params, version = {"limit": str(PAGE_OBJECTS)}, 0
        while True:
            answer = await page(self._api, _NAMES, namespace, params)
            listed.update(map(name_of, answer["items"]))
            version = version or int(answer["metadata"]["resourceVersion"])
            if not answer["metadata"].get("continue"):
                break
            params["continue"] = answer["metadata"]["continue"]
        for name, seen in list(self._versions.items()):
            if namespace in ("", name.namespace) and name not in listed and seen <= version:
                self._forget(name)

    def _keep(self, name: Name, item: Object) -> None:
        self._versions[name] = _version(item)
        for key in self._store.put(kinds.MODEL, thinned(item)):
            self._enqueue(key)

    def _forget(self, name: Name) -> None:
        self._versions.pop(name, None)
        gone = {"metadata": {"namespace": name.namespace, "name": name.name}}
        for key in self._store.drop(kinds.MODEL, gone):
            self._enqueue(key)


def thinned(item: Object) -> Object:
    """Return a GuidedModel without what nobody reads of it, and without params that nobody may have.

    A schema cannot bound params, and a megabyte of them can take fifty in memory.
    """
    metadata = {field: value for field, value in item["metadata"].items() if field != "managedFields"}
    kept = {**item, "metadata": metadata}
    spec = item.get("spec")
    processors = spec.get("logitsProcessors") if isinstance(spec, dict) else None
    if isinstance(spec, dict) and isinstance(processors, list):
        kept["spec"] = {**spec, "logitsProcessors": [_with_bounded_params(each) for each in processors]}
    return kept


def _with_bounded_params(processor: Any) -> Any:
    if isinstance(processor, dict) and is_too_large(processor.get("params")):
        return {**processor, "params": LEFT_OUT}
    return processor


def _but_status(item: Object | None) -> Object:
    return {field: value for field, value in (item or {}).items() if field != "status"}


def _version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])
