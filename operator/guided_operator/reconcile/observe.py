"""Step one of a pass: everything that the decisions need, read once into one frozen value."""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from guided_contract import names
from guided_operator.api import ManifestError, parse
from guided_operator.api.guided_decoding import ConfigMapKey
from guided_operator.builders import Sources, pod_key
from guided_operator.builders.grammars import map_name
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ObjectNotFound
from guided_operator.kube.apiserver import Api, Object
from guided_operator.kube.kinds import Kind
from guided_operator.kube.pod_view import PodView
from guided_operator.kube.queue import Key
from guided_operator.kube.store import Store
from guided_operator.watch.grammar_sources import GrammarSources
from guided_operator.watch.guided_models import Models
from guided_operator.watch.informers import Watches
from guided_operator.watch.sidecar_status import Page, SidecarReader

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Observed:
    """One GuidedModel and what is around it, as seen at the start of a pass.

    `children` holds the objects with our label by kind and name, pods aside; whether they are ours to
    change is for `apply` to say. `sources`: the ConfigMaps of its grammars. `blind`: kinds that the operator
    may not see, and why. `absent`: kinds whose API is not installed.
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

    def child(self, kind: Kind, name: str) -> Object | None:
        """Return a child, or None if there is none with our label."""
        return self.children.get(kind.name, _NOTHING).get(name)


class PagesAreReadError(Exception):
    """There is nothing to decide by until the pods' pages have been read."""


class Observer:
    """Makes `Observed` values.

    Parameters
    ----------
    models, store, watches
        The GuidedModels, their children, and which kinds of these cannot be seen.
    sidecars
        The pods' own word.
    sources
        The ConfigMaps of grammars.
    api
        Reads what the store does not hold.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is a place where a model is seen
        self,
        models: Models,
        store: Store,
        watches: Watches,
        sidecars: SidecarReader,
        sources: GrammarSources,
        api: Api,
    ) -> None:
        self._models = models
        self._store = store
        self._watches = watches
        self._sidecars = sidecars
        self._sources = sources
        self._api = api

    async def observe(self, key: Key) -> Observed | None:
        """Return what is the case for `key`, or None if there is no such GuidedModel.

        Raises
        ------
        PagesAreReadError
            What its pods say is being read; the model is queued again then.
        """
        children: dict[str, Mapping[str, Object]] = {
            kind.name: self._store.items(key, kind) for kind in kinds.WATCHED if kind is not kinds.POD
        }
        await self._models.confirm(key)
        model = self._store.model(key)
        if model is None:
            self._sidecars.forget(key)
            self._sources.forget(key)
            return None
        pods = tuple(sorted(self._store.items(key, kinds.POD).values(), key=lambda pod: str(pod.name)))
        named = _grammars(model)
        pages = self._sidecars.pages(key, pods, frozenset(named))
        if pages is None:
            raise PagesAreReadError
        maps: dict[str, Collection[str] | None] = {**_keys(named.values())}
        if named:
            maps[map_name(key.name)] = None
        children[kinds.REVISION.name] = await self._revisions(key, children[kinds.REVISION.name], model, pods)
        return Observed(
            key=key,
            model=model,
            children=children,
            pods=pods,
            pages=pages,
            sources=await self._sources.read(key, maps),
            blind=self._watches.blind(key.namespace),
            absent=self._watches.absent(key.namespace),
        )

    async def _revisions(
        self, key: Key, stored: Mapping[str, Object], model: Object, pods: Iterable[PodView]
    ) -> Mapping[str, Object]:
        """Return a model's revisions, with the data of those that a plan may need: older ones are read."""
        if all("data" in item for item in stored.values()):
            return stored
        wanted = {pod.revision for pod in pods if pod.live}
        with contextlib.suppress(ManifestError):  # the plan says so
            parsed = parse(model, unknown="ignore")
            wanted |= {pod_key(parsed), parsed.spec.rollout.rollback_to or ""}
        found: dict[str, Object] = {}
        for name, item in stored.items():
            if "data" not in item and item["metadata"].get("labels", {}).get(names.LABEL_REVISION) in wanted:
                with contextlib.suppress(ObjectNotFound):
                    whole = await self._api.read(kinds.REVISION.path(key.namespace, name))
                    found[name] = kinds.REVISION.project(whole)
            else:
                found[name] = item
        return found


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
