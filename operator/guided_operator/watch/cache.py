"""Watched objects as the operator sees them, by the GuidedModel that each is, or belongs to by its label."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from guided_contract import names
from guided_operator.api.logits_processors import LEFT_OUT, is_too_large
from guided_operator.kube.key import Key
from guided_operator.kube.kinds import MODEL, POD, WATCHED, Kind
from guided_operator.kube.pod_view import PodView

Object = dict[str, Any]
logger = logging.getLogger(__name__)
_NONE: Final[Mapping[str, "_Kept"]] = {}


class Name(NamedTuple):
    """Namespace and name of an object."""

    namespace: str
    name: str


class _Kept(NamedTuple):
    version: int
    view: Any


class Cache:
    """What was seen last of each object.

    Resource versions are compared as numbers, which Kubernetes promises since 1.35 and has always kept.

    Parameters
    ----------
    wake
        Called with each model of which something that matters has changed.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._items: dict[Key, dict[str, dict[str, _Kept]]] = {}
        self._keys: dict[tuple[str, Name], Key] = {}
        self._newest = Counter[str]()  # the highest version that a watch has told of, by kind
        self._unreadable: set[tuple[str, Name]] = set()

    def model(self, key: Key) -> Object | None:
        """Return a GuidedModel, None if there is none."""
        kept = self._of(key, MODEL).get(key.name)
        return None if kept is None else kept.view

    def pods(self, key: Key) -> tuple[PodView, ...]:
        """Return a model's pods in the order of their names."""
        return tuple(kept.view for _, kept in sorted(self._of(key, POD).items()))

    def items(self, key: Key, kind: Kind) -> Mapping[str, Any]:
        """Return a model's objects of one kind by name."""
        return {name: kept.view for name, kept in self._of(key, kind).items()}

    def models(self) -> set[Key]:
        """Return every GuidedModel."""
        return {Key(*name) for kind, name in self._keys if kind == MODEL.name}

    def unreadable(self) -> Mapping[str, int]:
        """Return how many objects of each kind cannot be read, and are left out."""
        found = Counter(kind for kind, _ in self._unreadable)
        return {kind.name: found[kind.name] for kind in (MODEL, *WATCHED)}

    def take(self, kind: Kind, event: str | None, item: Object) -> None:
        """Take in an event of a watch; of a list, its type is None."""
        self._newest[kind.name] = max(self._newest[kind.name], _version(item))
        if event == "DELETED":
            self._drop(kind, name_of(item))
        else:
            self._put(kind, item)

    def take_written(self, kind: Kind, item: Object) -> None:
        """Take in what a write of ours returned, if the watch has yet to tell of it."""
        if _version(item) > self._newest[kind.name]:  # later, it may be gone already
            self._put(kind, item, is_ours=True)

    def retain(self, kind: Kind, namespace: str, listed: Collection[Name], version: int) -> None:
        """Drop what a full list of `namespace` ("": all) lacks: what vanishes unwatched is told by nobody.

        What was seen since the list's own version stays.
        """
        for known, name in [one for one in self._keys if one[0] == kind.name and one[1] not in listed]:
            kept = self._items[self._keys[known, name]][known][name.name]
            if namespace in ("", name.namespace) and kept.version <= version:
                self._drop(kind, name)

    def _put(self, kind: Kind, item: Object, *, is_ours: bool = False) -> None:
        """Keep an object; one that cannot be read is forgotten, whatever is wrong with it."""
        name = name_of(item)
        try:
            self._keep(kind, name, item, is_ours=is_ours)
        except Exception:
            if (kind.name, name) not in self._unreadable:
                logger.exception("%s %s/%s cannot be read and is ignored", kind.name, *name)
            self._unreadable.add((kind.name, name))
            self._forget(kind, name)
        else:
            self._unreadable.discard((kind.name, name))

    def _keep(self, kind: Kind, name: Name, item: Object, *, is_ours: bool) -> None:
        key = Key(*name) if kind is MODEL else Key(name.namespace, _label(item))
        kept, before = _Kept(_version(item), kind.project(item)), self._of(key, kind).get(name.name)
        if before is not None and before.version > kept.version:
            return  # a write of ours is newer
        if self._keys.get((kind.name, name), key) != key:  # relabelled to another model
            self._forget(kind, name)
        self._keys[kind.name, name] = key
        self._items.setdefault(key, {}).setdefault(kind.name, {})[name.name] = kept
        # What a write of ours made so is no news; but its answer may hold what others have changed.
        compared = _but_status if kind is MODEL else _whole
        is_news = before is None or compared(before.view) != compared(kept.view)
        if is_news and (kind is MODEL or not is_ours):
            self._wake(key)

    def _drop(self, kind: Kind, name: Name) -> None:
        self._unreadable.discard((kind.name, name))
        self._forget(kind, name)

    def _forget(self, kind: Kind, name: Name) -> None:
        key = self._keys.pop((kind.name, name), None)
        if key is None:
            return
        of_kinds = self._items[key]
        del of_kinds[kind.name][name.name]
        if not any(of_kinds.values()):
            del self._items[key]
        self._wake(key)

    def _of(self, key: Key, kind: Kind) -> Mapping[str, _Kept]:
        return self._items.get(key, {}).get(kind.name, _NONE)


def _whole(view: Any) -> Any:
    return view


def _but_status(model: Object) -> Object:
    return {field: value for field, value in model.items() if field != "status"}


def _label(item: Object) -> str:
    label: str = (item["metadata"].get("labels") or {}).get(names.LABEL_NAME, "")
    return label


def _version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])


def name_of(item: Object) -> Name:
    """Return where an object is."""
    return Name(item["metadata"]["namespace"], item["metadata"]["name"])


def thinned(item: Object) -> Object:
    """Return an object without what nobody reads of it, a GuidedModel without params that nobody may have.

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
