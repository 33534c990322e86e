"""How a Deployment changes its template amid a rollout: paused, until its controller is up to date.

Kubernetes' controller counts available pods by the statuses of its ReplicaSets, which lag behind the pods
that are told to end. In one direction it first counts what it has asked for; turned in its middle it takes
pods that end for available, and ends more than maxUnavailable allows (docs/decisions/0021-revisions.md).
"""

from collections.abc import Iterable
from typing import Any, Final

from guided_operator.kube.diff import differences

Object = dict[str, Any]
# A watch event usually wakes us; the status of ReplicaSets is not watched, so it is polled.
LOOK_S: Final = 0.5
_COUNTS: Final = ("replicas", "readyReplicas", "availableReplicas")


def is_turn(seen: Object, wanted: Object) -> bool:
    """Return whether writing `wanted` over the Deployment `seen` starts a rollout amid another one."""
    if is_paused(wanted):
        return False
    if is_paused(seen):
        return True
    return not _is_at_rest(seen) and bool(differences(wanted["spec"]["template"], seen["spec"]["template"]))


def is_held(now: Object | None, wanted: Object) -> bool:
    """Return whether an object is still paused by us although `wanted` is not paused."""
    return now is not None and is_paused(now) and not is_paused(wanted)


def is_paused(item: Object) -> bool:
    """Return whether a Deployment's pods are left as they are; nothing else is ever paused."""
    return item["kind"] == "Deployment" and bool(item["spec"].get("paused"))


def paused(wanted: Object) -> Object:
    """Return a Deployment as wanted, but for its pods, which are left as they are."""
    return {**wanted, "spec": {**wanted["spec"], "paused": True}}


def is_known(seen: Object, replica_sets: Iterable[Object]) -> bool:
    """Return whether a paused Deployment's controller knows which pods there are.

    `replica_sets` are those of its namespace with the model's label, read after the Deployment was.
    """
    if not _is_observed(seen):
        return False
    uid = seen["metadata"]["uid"]
    sets = [each for each in replica_sets if _controller(each) == uid]
    return all(map(_has_let_go, sets)) and all(
        _count(seen, name) == sum(_count(each, name) for each in sets) for name in _COUNTS
    )


def _is_at_rest(seen: Object) -> bool:
    """Return whether all pods, ready or not, are of the Deployment's template."""
    wanted = seen["spec"].get("replicas", 1)
    return _is_observed(seen) and wanted == _count(seen, "replicas") == _count(seen, "updatedReplicas")


def _has_let_go(replica_set: Object) -> bool:
    """Return whether a ReplicaSet has told all pods to end that it does not want."""
    return _is_observed(replica_set) and _count(replica_set, "replicas") <= replica_set["spec"]["replicas"]


def _is_observed(item: Object) -> bool:
    seen: int = item.get("status", {}).get("observedGeneration", 0)
    return bool(seen >= item["metadata"]["generation"])


def _count(item: Object, name: str) -> int:
    count: int = item.get("status", {}).get(name, 0)
    return count


def _controller(item: Object) -> str | None:
    references = item["metadata"].get("ownerReferences", ())
    return next((each["uid"] for each in references if each.get("controller")), None)
