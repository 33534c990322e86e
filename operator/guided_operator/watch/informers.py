"""What the operator sees of the cluster: each kind, in each namespace that it serves, kept by a reflector."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from guided_contract.tasks import live
from guided_operator.kube import kinds
from guided_operator.kube.apiserver import Api, Object
from guided_operator.kube.kinds import Kind
from guided_operator.kube.queue import Key
from guided_operator.kube.reflector import Reflector, Seen

# How the ConfigMaps that are not ours are called where one has to say that they cannot be seen.
OTHERS = "others' ConfigMap"


class Watches:
    """All reflectors.

    Parameters
    ----------
    api
        Where objects are listed and watched.
    store, sources
        What takes in the children, and others' ConfigMaps.
    enqueue
        Called with each GuidedModel that a change concerns.
    namespaces
        Those that are served; empty: all.
    """

    def __init__(
        self, api: Api, store: Seen, sources: Seen, enqueue: Callable[[Key], None], namespaces: Sequence[str]
    ) -> None:
        watched = [(kind.name, kind, store) for kind in kinds.WATCHED]
        watched.append((OTHERS, kinds.GRAMMAR_SOURCE, sources))
        self._reflectors = {
            (name, namespace): Reflector(api, kind, target, enqueue, namespace=namespace)
            for namespace in namespaces or ("",)
            for name, kind, target in watched
        }

    async def run(self) -> None:
        """List and watch for ever."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(live("watch", reflector.run))

    def take_written(self, kind: Kind, item: Object) -> None:
        """Take in an object as a write of ours returned it: the next pass need not wait for the watch."""
        for namespace in ("", item["metadata"]["namespace"]):
            if reflector := self._reflectors.get((kind.name, namespace)):
                reflector.take_written(item)

    def blind(self, namespace: str) -> Mapping[str, str]:
        """Return the kinds that cannot be seen in a namespace, and why."""
        return {
            name: reflector.forbidden
            for (name, where), reflector in self._reflectors.items()
            if where in ("", namespace) and reflector.forbidden
        }

    def unseen(self) -> Mapping[str, str]:
        """Return the paths of the collections that cannot be seen, and why."""
        return {
            kinds.BY_NAME.get(name, kinds.GRAMMAR_SOURCE).path(where): reflector.forbidden
            for (name, where), reflector in self._reflectors.items()
            if reflector.forbidden
        }

    def forbidden(self) -> Mapping[str, int]:
        """Return in how many namespaces each kind cannot be seen."""
        return self._sums(lambda reflector: bool(reflector.forbidden))

    def failures(self) -> Mapping[str, int]:
        """Return how often watches of each kind broke off."""
        return self._sums(lambda reflector: reflector.broken)

    def unreadable(self) -> Mapping[str, int]:
        """Return how many objects of each kind cannot be read, and are left out."""
        return self._sums(lambda reflector: len(reflector.unreadable))

    def absent(self, namespace: str) -> frozenset[str]:
        """Return the kinds whose API is not installed."""
        return frozenset(
            name
            for (name, where), reflector in self._reflectors.items()
            if where in ("", namespace) and reflector.absent
        )

    def is_synced(self) -> bool:
        """Return whether every kind has been listed, or is known to be forbidden or absent."""
        return all(reflector.settled.is_set() for reflector in self._reflectors.values())

    async def synced(self) -> None:
        """Wait until `is_synced`: deciding earlier would take what was not listed yet for missing."""
        for reflector in self._reflectors.values():
            await reflector.settled.wait()

    def _sums(self, figure: Callable[[Reflector], int]) -> Mapping[str, int]:
        sums = dict.fromkeys((name for name, _ in self._reflectors), 0)
        for (name, _), reflector in self._reflectors.items():
            sums[name] += figure(reflector)
        return sums
