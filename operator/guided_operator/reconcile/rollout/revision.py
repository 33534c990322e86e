"""Revisions: each is a ControllerRevision that holds what was rendered for one state of the user's spec.

The key (`builders.pod_key`) hashes what the user set, so a new release of the operator, which may render
differently, finds the same key, applies what is stored, and restarts nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubernetes.aio import client

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.builders import labels, manifest
from guided_operator.kube.kinds import REVISION, is_owned

Object = dict[str, Any]

HISTORY_LIMIT: Final = 5  # beside the current one: enough to go back some steps; each is a few kilobytes


@dataclass(frozen=True, slots=True)
class Revision:
    """One stored revision.

    `data`: the pod template, the data of the configuration file's ConfigMap, and the spec that both are made
    from, which earlier releases did not keep; None: it has not been read.
    """

    key: str
    number: int
    data: Object | None

    @property
    def content(self) -> Object:
        """Its data, which has been read."""
        if self.data is None:
            raise LookupError(f"revision {self.key} has not been read")
        return self.data


def stored(items: Mapping[str, Object], owner_uid: str) -> dict[str, Revision]:
    """Return a model's own revisions by key; what is labelled like one but is not ours is left out."""
    found: dict[str, Revision] = {}
    for item in items.values():
        key = item["metadata"].get("labels", {}).get(names.LABEL_REVISION)
        data = item.get("data")
        is_whole = data is None or (isinstance(data, dict) and {"template", "config"} <= set(data))
        if key and is_owned(item, owner_uid) and is_whole:
            found[key] = Revision(key, item.get("revision", 0), data)
    return found


def choose(known: Mapping[str, Revision], key: str, render: Callable[[], Object]) -> Revision:
    """Return the revision to run: the stored one with this key, else a new one.

    It always has the highest number, also after a revert or a rollback.

    Parameters
    ----------
    known
        Stored revisions by key.
    render
        Called for a new revision only; returns its data (see Revision).
    """
    newest = max((each.number for each in known.values()), default=0)
    old = known.get(key)
    if old is None:
        return Revision(key, newest + 1, render())
    return old if old.number == newest else Revision(key, newest + 1, old.content)


def expired(known: Mapping[str, Revision], in_use: Iterable[str]) -> set[str]:
    """Return the keys of revisions beyond HISTORY_LIMIT, oldest first out; never one in `in_use` (keys)."""
    kept = set(in_use)
    rest = sorted((each for each in known.values() if each.key not in kept), key=lambda each: -each.number)
    return {each.key for each in rest[HISTORY_LIMIT:]}


def name_of(model: str, key: str) -> str:
    """Return the name of a revision's ControllerRevision, and of its ConfigMap."""
    return f"{model}-{key}"


def to_manifest(model: GuidedModel, revision: Revision) -> Object:
    """Return the ControllerRevision that stores a revision."""
    body = client.V1ControllerRevision(
        api_version=REVISION.api_version,
        kind=REVISION.name,
        metadata=labels.metadata(model, name_of(model.name, revision.key)),
        revision=revision.number,
        data=revision.content,
    )
    body.metadata.labels[names.LABEL_REVISION] = revision.key
    return manifest(body)
