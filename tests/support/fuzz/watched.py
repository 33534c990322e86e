"""Objects that a tenant may write and the operator watches: none of them keeps another from being seen.

An API server gives each object a name, a namespace, a uid and a version; all else may be anything here.
"""

import asyncio
from typing import Any, Final

import msgspec

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.queue import Key
from guided_operator.kube.reflector import Reflector
from guided_operator.kube.store import Store
from support.fuzz import mutation
from support.fuzz.target import Target
from support.memory_api import MemoryApi

Object = dict[str, Any]
_KINDS: Final = (*kinds.WATCHED, kinds.MODEL)


def target() -> Target:
    """Return the target."""
    loop = asyncio.new_event_loop()
    return Target(seeds(), mutation.either(mutation.json_value), lambda data: _run(loop, data), loop.close)


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


def _run(loop: asyncio.AbstractEventLoop, data: bytes) -> None:
    try:
        read = msgspec.json.decode(data)
        kind, item = _KINDS[read["kind"] % len(_KINDS)], read["object"]
        given = {"name": "bad", "namespace": "ns", "uid": "bad", "resourceVersion": "1"}
        item["metadata"] = {**item["metadata"], **given}
    except (KeyError, TypeError, ValueError, RecursionError):
        return  # no object that an API server would send
    loop.run_until_complete(_watch(kind, item))


async def _watch(kind: kinds.Kind, item: Object) -> None:
    store, rung = Store(), list[Key]()
    reflector = Reflector(MemoryApi(), kind, store, rung.append)
    for event, each in (("ADDED", item), ("ADDED", _honest()), ("MODIFIED", item), ("DELETED", item)):
        reflector._take({"type": event, "object": each})
        belongings = store.keys()
        for key in belongings:
            assert all(store.items(key, kind).values())
    assert _honest()["metadata"]["name"] in store.items(Key("ns", "m"), kind) or kind is kinds.MODEL
    assert not reflector.unreadable
    assert Key("ns", "m") in rung or kind is kinds.MODEL


def _honest() -> Object:
    item: Object = msgspec.json.decode(seeds()[0])["object"]
    item["metadata"] |= {"name": "good", "namespace": "ns", "uid": "good", "resourceVersion": "2"}
    return item
