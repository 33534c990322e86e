"""What LeaderWorkerSet itself says: which objects its webhook refuses, and when it begins a group again.

Written after kubernetes-sigs/lws (Apache-2.0), whose webhook and controller cannot be run here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor
from typing import Any, Final

Object = dict[str, Any]

_LABEL: Final = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"  # DNS-1035: the set's headless Service has its name
_KEY: Final = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE: Final = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_MOST: Final = 2**31 - 1
AFTER_START: Final = "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start"
# Of the field, in all versions; RecreateGroupAfterStart is one from 0.9 on.
_POLICIES: Final = ("Default", "None", "RecreateGroupOnPodRestart")
_RECREATE: Final = ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart")


def refusals(workers: Object) -> list[str]:
    """Return why the webhook refuses a LeaderWorkerSet; [] if it takes it."""
    return [why for why, is_so in _REFUSED.items() if is_so(workers)]


def is_recreated(workers: Object, pods: Sequence[Object]) -> bool:
    """Return whether the controller begins anew with the group that these pods are all of."""
    template, annotations = workers["spec"]["leaderWorkerTemplate"], workers["metadata"].get("annotations")
    policy = template["restartPolicy"]
    is_pending = len(pods) != template["size"] or any(map(_is_pending, pods))
    waits = policy == "RecreateGroupAfterStart" or AFTER_START in (annotations or {})
    has_restarted = any(map(_has_restarted, pods))
    return policy in _RECREATE and has_restarted and not (waits and is_pending)


def _is_pending(pod: Object) -> bool:
    return bool(pod["status"].get("phase", "Pending") == "Pending")


def _has_restarted(pod: Object) -> bool:
    kinds = ("initContainerStatuses", "containerStatuses")
    return any(each["restartCount"] for kind in kinds for each in pod["status"].get(kind) or ())


def _replicas(workers: Object) -> int:
    replicas: int = workers["spec"].get("replicas", 1)
    return replicas


def _size(workers: Object) -> int:
    size: int = workers["spec"]["leaderWorkerTemplate"].get("size", 1)
    return size


def _bound(workers: Object, name: str, default: int) -> Any:
    bounds = workers["spec"].get("rolloutStrategy", {}).get("rollingUpdateConfiguration") or {}
    return bounds.get(name, default)


def _unavailable(workers: Object) -> Any:
    return _bound(workers, "maxUnavailable", 1)


def _surge(workers: Object) -> Any:
    return _bound(workers, "maxSurge", 0)


def _is_odd(bound: Any) -> bool:
    return not re.fullmatch(r"[0-9]+%", bound) if isinstance(bound, str) else bound < 0


def _is_over(bound: Any) -> bool:
    return isinstance(bound, str) and not _is_odd(bound) and int(bound[:-1]) > 100


def _scaled(bound: Any, replicas: int, rounded: Callable[[float], int]) -> int:
    if isinstance(bound, int):
        return bound
    return 0 if _is_odd(bound) else rounded(int(bound[:-1]) * replicas / 100)


def _is_stuck(workers: Object) -> bool:
    replicas = _replicas(workers)
    counts = _scaled(_unavailable(workers), replicas, floor), _scaled(_surge(workers), replicas, ceil)
    return counts == (0, 0) and replicas != 0


def _metadata(workers: Object, field: str) -> Mapping[str, str]:
    found: Mapping[str, str] = workers["metadata"].get(field) or {}
    return found


_REFUSED: Final[Mapping[str, Callable[[Object], bool]]] = {
    "metadata.name: a DNS-1035 label": lambda lws: not re.fullmatch(_LABEL, lws["metadata"]["name"]),
    "metadata.labels: valid keys and values": lambda lws: (
        not all(
            re.fullmatch(_KEY, key) and re.fullmatch(_VALUE, value)
            for key, value in _metadata(lws, "labels").items()
        )
    ),
    "metadata.annotations: valid keys": lambda lws: (
        not all(re.fullmatch(_KEY, key.lower()) for key in _metadata(lws, "annotations"))
    ),
    "spec.replicas: 0 or more": lambda lws: _replicas(lws) < 0,
    "spec.leaderWorkerTemplate.size: 1 or more": lambda lws: _size(lws) < 1,
    "spec.replicas: times size at most 2^31 - 1": lambda lws: _replicas(lws) * _size(lws) > _MOST,
    "spec.leaderWorkerTemplate.restartPolicy: a value of all versions": lambda lws: (
        lws["spec"]["leaderWorkerTemplate"].get("restartPolicy", "Default") not in _POLICIES
    ),
    "maxUnavailable: a count or a percentage": lambda lws: _is_odd(_unavailable(lws)),
    "maxUnavailable: at most 100%": lambda lws: _is_over(_unavailable(lws)),
    "maxSurge: a count or a percentage": lambda lws: _is_odd(_surge(lws)),
    "maxSurge: at most 100%": lambda lws: _is_over(_surge(lws)),
    "maxUnavailable: not 0 where maxSurge is 0": _is_stuck,
    "partition: 0 or more": lambda lws: _bound(lws, "partition", 0) < 0,
}
