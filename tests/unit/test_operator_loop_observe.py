"""What a pass knows of when, where one watch is ahead of another."""

from typing import Any

import pytest

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.key import Key
from guided_operator.reconcile.observe import Observer
from guided_operator.watch.cache import Cache
from guided_operator.watch.informers import Informers
from guided_operator.watch.sidecar_status import SidecarReader
from support.memory_api import MemoryApi
from support.observed import model as observed_model

Object = dict[str, Any]
KEY = Key("ns", "m")


class Cluster:
    """An API server, and what an operator has been told of it."""

    def __init__(self) -> None:
        self.api, self.cache, self.now_s = MemoryApi(), Cache(lambda _key: None), 0.0
        informers = Informers(self.api, self.cache, [])
        sidecars = SidecarReader(self._no_page, lambda: 0.0)
        self.observer = Observer(self.cache, informers, sidecars, self.api, lambda: self.now_s)

    async def _no_page(self, _address: str) -> bytes:
        raise AssertionError("there are no pods")

    def has(self, item: Object, *, told: bool = True) -> None:
        self.api.objects[kinds.model_path("ns", "m")] = item
        if told:
            self.cache.take(kinds.MODEL, None, item)


def model(version: int, replicas: int) -> Object:
    metadata = {"name": "m", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"replicas": replicas}}


def child(kind: kinds.Kind, name: str, replicas: int) -> Object:
    owner = {"kind": names.KIND, "name": "m", "uid": "u", "controller": True}
    labels = {names.LABEL_NAME: "m"}
    metadata = {"name": name, "namespace": "ns", "uid": "c", "labels": labels, "ownerReferences": [owner]}
    metadata["resourceVersion"] = "1"
    return {"kind": kind.name, "metadata": metadata, "spec": {"replicas": replicas}}


@pytest.mark.parametrize(("uid", "is_told"), [("u", True), ("another", False)])
async def test_texts_that_pods_have_are_those_of_our_own_configmap(uid: str, *, is_told: bool) -> None:
    cluster = Cluster()
    reference = {"name": "texts", "key": "a"}
    raw = model(1, 1)
    raw |= {"apiVersion": "guidedmodel.io/v1alpha1", "kind": names.KIND}
    raw["spec"] = observed_model(
        guidedDecoding={"grammars": [{"name": "a", "kind": "Regex", "configMapKeyRef": reference}]}
    )["spec"]
    cluster.has(raw)
    ours = {**child(kinds.CONFIG_MAP, "m-grammars", 1), "data": {"a.Regex": "x"}}
    ours["metadata"]["ownerReferences"][0]["uid"] = uid
    cluster.api.objects[kinds.CONFIG_MAP.path("ns", "m-grammars")] = ours
    observed = await cluster.observer.observe(KEY)
    assert observed is not None
    assert ("m-grammars" in observed.sources) == is_told
