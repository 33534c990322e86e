"""Revisions: each is a ControllerRevision that holds what was rendered for one state of the user's spec.

The key (`builders.pod_key`) hashes what the user set, so a new release of the operator, which may render
differently, finds the same key, applies what is stored, and restarts nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.builders.objects import metadata
from guided_operator.builders.revision_key import revision_name
from guided_operator.kube.kinds import REVISION, is_owned

Object = dict[str, Any]

HISTORY_LIMIT: Final = 5  # beside the current one: enough to go back some steps; each is a few kilobytes


@dataclass(frozen=True, slots=True)
class Revision:
    """One stored revision.

    `data`: the pod template, the data of the configuration file's ConfigMap, and the spec that both are made
    from, which earlier releases did not keep.
    """

    key: str
    number: int
    data: Object


def stored(items: Mapping[str, Object], owner_uid: str) -> dict[str, Revision]:
    """Return a model's own revisions by key; what is labelled like one but is not ours is left out."""
    found: dict[str, Revision] = {}
    for item in items.values():
        key = item["metadata"].get("labels", {}).get(names.LABEL_REVISION)
        data = item.get("data")
        if not isinstance(data, dict) or not {"template", "config"} <= set(data):
            continue
        if key and is_owned(item, owner_uid):
            found[key] = Revision(key, item.get("revision", 0), data)
    return found


def choose(known: Mapping[str, Revision], key: str, render: Callable[[], Object]) -> Revision:
    """Return the revision to run: the stored one with this key, else a new one, of what `render` returns.

    It always has the highest number, also after a revert or a rollback.
    """
    newest = max((each.number for each in known.values()), default=0)
    old = known.get(key)
    if old is None:
        return Revision(key, newest + 1, render())
    return old if old.number == newest else Revision(key, newest + 1, old.data)


def expired(known: Mapping[str, Revision], in_use: Iterable[str]) -> set[str]:
    """Return the keys of revisions beyond HISTORY_LIMIT, oldest first out; never one in `in_use` (keys)."""
    kept = set(in_use)
    rest = sorted((each for each in known.values() if each.key not in kept), key=lambda each: -each.number)
    return {each.key for each in rest[HISTORY_LIMIT:]}


def to_manifest(model: GuidedModel, revision: Revision) -> Object:
    """Return the ControllerRevision that stores a revision."""
    about = metadata(model, revision_name(model.name, revision.key))
    about["labels"][names.LABEL_REVISION] = revision.key
    return {
        "apiVersion": REVISION.api_version,
        "data": revision.data,
        "kind": REVISION.name,
        "metadata": about,
        "revision": revision.number,
    }
