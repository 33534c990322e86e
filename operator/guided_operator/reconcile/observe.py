"""Step one of a pass: everything that the decisions need, read once into one frozen value."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from guided_contract import names
from guided_operator.api import ManifestError, parse
from guided_operator.api.guided_decoding import ConfigMapKey
from guided_operator.builders import Sources
from guided_operator.builders.grammars import map_name
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import AccessForbidden, ObjectNotFound
from guided_operator.kube.apiserver import Api, Object
from guided_operator.kube.key import Key
from guided_operator.kube.kinds import Kind, is_owned
from guided_operator.kube.pod_view import PodView
from guided_operator.watch import grammar_sources
from guided_operator.watch.cache import Cache
from guided_operator.watch.informers import Informers
from guided_operator.watch.sidecar_status import Page, SidecarReader

Asked = tuple[str, int, Mapping[str, str]]
_NOTHING: Final[Mapping[str, Any]] = {}
# What is not watched is read again so often: what somebody has changed or deleted by hand is repaired then.
REREAD_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Observed:
    """One GuidedModel and what is around it, as seen at the start of a pass.

    `children` holds the objects with our label by kind and name, of the kinds that are watched, revisions and
    the PodMonitor; whether they are ours to change is for `apply` to say. `sources`: the ConfigMaps of its
    grammars, and our own of their texts. `blind`: kinds that the operator may not see, and why. `absent`:
    kinds whose API is not installed.
    """

    key: Key
    model: Object
    children: Mapping[str, Mapping[str, Object]] = field(default_factory=dict)
    pods: tuple[PodView, ...] = ()
    pages: Mapping[str, Page] = field(default_factory=dict)
    sources: Sources = field(default_factory=dict)
    blind: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    @property
    def uid(self) -> str:
        """The GuidedModel's own uid: what its children's controller reference must say."""
        uid: str = self.model["metadata"]["uid"]
        return uid

    @property
    def generation(self) -> int:
        """The generation of the spec seen."""
        generation: int = self.model["metadata"]["generation"]
        return generation

    @property
    def asked(self) -> Asked:
        """What users have changed if it is another: what is not watched is read again then."""
        return asked(self.model)

    def child(self, kind: Kind, name: str) -> Object | None:
        """Return a child, or None if there is none with our label."""
        return self.children.get(kind.name, _NOTHING).get(name)


class Observer:
    """Makes `Observed` values.

    Parameters
    ----------
    cache, informers
        What is watched, and what of it cannot be seen.
    sidecars
        The pods' own word.
    api
        Reads what is not watched.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        cache: Cache,
        informers: Informers,
        sidecars: SidecarReader,
        api: Api,
        clock: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._informers = informers
        self._sidecars = sidecars
        self._api = api
        self._clock = clock
        self._read: dict[Key, tuple[Asked, float, dict[str, Mapping[str, Object]]]] = {}

    async def prepare(self, key: Key) -> bool:
        """Read what the model's pods say; return whether that is something else than before."""
        model = self._cache.model(key)
        if model is None:
            return True
        return await self._sidecars.read(key, self._cache.pods(key), frozenset(_grammars(model)))

    def due_s(self, key: Key) -> float:
        """Return the seconds until there is something to prepare, also of a pod that came in a pass."""
        model = self._cache.model(key)
        grammars = frozenset(_grammars(model)) if model is not None else frozenset[str]()
        return self._sidecars.due_s(key, self._cache.pods(key), grammars)

    def take_written(self, kind: Kind, item: Object) -> None:
        """Take in an object as a write of ours returned it."""
        if kind in kinds.OBSERVED:  # read again in the next pass
            owners: Sequence[Object] = item["metadata"]["ownerReferences"]
            owner = next(each["name"] for each in owners if each.get("controller"))
            self._read.pop(Key(item["metadata"]["namespace"], owner), None)
        else:
            self._cache.take_written(kind, item)

    async def observe(self, key: Key) -> Observed | None:
        """Return what is the case for `key`, or None if there is no such GuidedModel.

        Raises
        ------
        ApiError
            What is not watched could not be read.
        """
        children = {
            kind.name: self._cache.items(key, kind) for kind in kinds.WATCHED if kind is not kinds.POD
        }
        model = self._cache.model(key)
        if model is None:
            self._sidecars.forget(key)
            self._read.pop(key, None)
            return None
        pods = self._cache.pods(key)
        children |= await self._stored(key, asked(model))
        return Observed(
            key=key,
            model=model,
            children=children,
            pods=pods,
            pages=self._sidecars.pages(key, pods),
            sources=await self._sources(key, model),
            blind=self._informers.blind(key.namespace),
            absent=self._informers.absent(),
        )

    async def _stored(self, key: Key, now_asked: Asked) -> Mapping[str, Mapping[str, Object]]:
        """Return a model's revisions and its PodMonitor, as they were when they were read last."""
        was_asked, read_s, found = self._read.get(key, (None, -math.inf, {}))
        if now_asked != was_asked or self._clock() - read_s >= REREAD_S:
            params = {"labelSelector": f"{names.LABEL_NAME}={key.name}"}
            listed = await self._api.read(kinds.REVISION.path(key.namespace), params=params)
            found = {kinds.REVISION.name: _by_name(kinds.REVISION, listed["items"])}
            found[kinds.POD_MONITOR.name] = _by_name(kinds.POD_MONITOR, await self._monitors(key))
            # What another left, maybe a namesake before, goes or is given up without a word to us.
            if all(is_owned(each, now_asked[0]) for items in found.values() for each in items.values()):
                self._read[key] = now_asked, self._clock(), found
        return found

    async def _monitors(self, key: Key) -> Sequence[Object]:
        if kinds.POD_MONITOR.name in self._informers.absent():
            return []
        try:
            return [await self._api.read(kinds.POD_MONITOR.path(*key))]
        except (ObjectNotFound, AccessForbidden):  # where one is wanted, its write says so
            return []

    async def _sources(self, key: Key, model: Object) -> Sources:
        """Return the ConfigMaps of a model's grammars, and the texts that pods have now."""
        named = _grammars(model)
        if not named:
            return {}
        found = dict(await grammar_sources.read(self._api, key.namespace, _keys(named.values())))
        mounted = await grammar_sources.config_map(self._api, key.namespace, map_name(key.name))
        if mounted is not None and is_owned(mounted, model["metadata"]["uid"]):
            found[map_name(key.name)] = mounted.get("data") or {}
        return found


def asked(model: Object) -> Asked:
    """Return what differs once somebody has changed a GuidedModel's spec or annotations, or made it anew."""
    metadata = model["metadata"]
    return metadata["uid"], metadata.get("generation", 0), metadata.get("annotations") or {}


def _by_name(kind: Kind, items: Iterable[Object]) -> Mapping[str, Object]:
    return {each["metadata"]["name"]: kind.project(each) for each in items}


def _keys(references: Iterable[ConfigMapKey]) -> Mapping[str, Collection[str]]:
    """Return the keys that are referred to, by ConfigMap."""
    found: dict[str, set[str]] = {}
    for reference in references:
        found.setdefault(reference.name, set()).add(reference.key)
    return found


def _grammars(model: Object) -> Mapping[str, ConfigMapKey]:
    """Return the model's grammars by name, with where each is."""
    guided = (model.get("spec") or {}).get("guidedDecoding")
    if not isinstance(guided, dict) or not guided.get("grammars"):  # most have none, and parsing takes long
        return {}
    try:
        grammars = parse(model, unknown="ignore").spec.guided_decoding.grammars
    except ManifestError:  # the plan says so
        return {}
    return {grammar.name: grammar.config_map_key_ref for grammar in grammars}
