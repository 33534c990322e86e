"""Objects that a tenant may write and the operator watches: none of them keeps another from being seen.

An API server gives each object a name, a namespace, a uid and a version; all else may be anything here.
"""

from typing import Any, Final

import msgspec

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.key import Key
from guided_operator.watch.cache import Cache
from support.fuzz import mutation
from support.fuzz.target import Target

Object = dict[str, Any]
_KINDS: Final = (*kinds.WATCHED, kinds.MODEL)
_KEY: Final = Key("ns", "m")


def target() -> Target:
    """Return the target."""
    return Target(seeds(), mutation.either(mutation.json_value), _run)


def seeds() -> list[bytes]:
    """Return an object of each kind."""
    texts = {"data": {"a": "x"}, "revision": 1}
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "m"}}
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "Error: a\nb"}}
    container = {"name": names.ENGINE_CONTAINER, "restartCount": 1, "state": waiting, "lastState": ended}
    conditions = [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}]
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": conditions,
        "containerStatuses": [container],
    }
    labels = {names.LABEL_NAME: "m", names.LABEL_REVISION: "r", names.LABEL_NODE: "1"}
    owner = {"apiVersion": "x/v1", "kind": names.KIND, "name": "m", "uid": "u", "controller": True}
    metadata = {"labels": labels, "annotations": {"a": "b"}, "ownerReferences": [owner], "generation": 2}
    spec = {"replicas": 1, "nodeName": "n", "containers": [{"name": "x"}]}
    return [
        msgspec.json.encode(
            {"kind": number, "object": {"metadata": metadata, "spec": spec, "status": status, **texts}}
        )
        for number in range(len(_KINDS))
    ]


def _run(data: bytes) -> None:
    try:
        read = msgspec.json.decode(data)
        kind, item = _KINDS[read["kind"] % len(_KINDS)], read["object"]
        given = {"name": "bad", "namespace": "ns", "uid": "bad", "resourceVersion": "1"}
        item["metadata"] = {**item["metadata"], **given}
    except (KeyError, TypeError, ValueError, RecursionError):
        return  # no object that an API server would send
    _watch(kind, item)


def _watch(kind: kinds.Kind, item: Object) -> None:
    woken = list[Key]()
    cache = Cache(woken.append)
    for event, each in (("ADDED", item), ("ADDED", _honest()), ("MODIFIED", item), ("DELETED", item)):
        cache.take(kind, event, each)
    if kind is kinds.MODEL:
        assert Key("ns", "good") in cache.models()
    else:
        assert "good" in cache.items(_KEY, kind)
        assert _KEY in woken
    assert not any(cache.unreadable().values())


def _honest() -> Object:
    item: Object = msgspec.json.decode(seeds()[0])["object"]
    item["metadata"] |= {"name": "good", "namespace": "ns", "uid": "good", "resourceVersion": "2"}
    return item
