"""What a pass knows of when, where one watch is ahead of another."""

from typing import Any

import pytest

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.queue import Key
from guided_operator.kube.store import Store
from guided_operator.reconcile.observe import Observer
from guided_operator.watch.grammar_sources import GrammarSources
from guided_operator.watch.guided_models import Models
from guided_operator.watch.informers import Watches
from guided_operator.watch.sidecar_status import SidecarReader
from support.memory_api import MemoryApi

Object = dict[str, Any]
KEY = Key("ns", "m")


class Cluster:
    """An API server, and what an operator has been told of it."""

    def __init__(self) -> None:
        self.api, self.store = MemoryApi(), Store()
        self.models = Models(self.api, self.store, lambda _key: None, [])
        sources = GrammarSources(self.api)
        watches = Watches(self.api, self.store, sources, lambda _key: None, [])
        sidecars = SidecarReader(self._no_page, lambda: 0.0, lambda _key: None)
        self.observer = Observer(self.models, self.store, watches, sidecars, sources, self.api)

    async def _no_page(self, _address: str) -> bytes:
        raise AssertionError("there are no pods")

    def has(self, item: Object, *, told: bool = True) -> None:
        self.api.objects[kinds.model_path("ns", "m")] = item
        if told:
            self.models.take(None, item)

    async def replicas(self) -> int:
        observed = await self.observer.observe(KEY)
        assert observed is not None
        replicas: int = observed.model["spec"]["replicas"]
        return replicas


def model(version: int, replicas: int, *, autoscaling: bool) -> Object:
    metadata = {"name": "m", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
    spec: Object = {"replicas": replicas}
    return {"metadata": metadata, "spec": spec | ({"autoscaling": {"maxReplicas": 9}} if autoscaling else {})}


def child(kind: kinds.Kind, name: str, replicas: int) -> Object:
    owner = {"kind": names.KIND, "uid": "u", "controller": True}
    labels = {names.LABEL_NAME: "m"}
    metadata = {"name": name, "namespace": "ns", "uid": "c", "labels": labels, "ownerReferences": [owner]}
    return {"kind": kind.name, "metadata": metadata, "spec": {"replicas": replicas}}


@pytest.mark.parametrize(("kind", "name"), [(kinds.DEPLOYMENT, "m"), (kinds.WORKER_SET, "m-nodes")])
async def test_number_that_an_autoscaler_wrote_is_known_when_its_decision_is(
    kind: kinds.Kind, name: str
) -> None:
    """Seen on Kubernetes 1.30: its status was told before the number, and two of three pods went."""
    cluster = Cluster()
    cluster.has(model(1, 1, autoscaling=True))
    cluster.store.put(kind, child(kind, name, 3))
    cluster.has(model(2, 3, autoscaling=True), told=False)
    assert await cluster.replicas() == 3


async def test_nothing_is_asked_for_where_no_replica_may_go_by_it() -> None:
    cluster = Cluster()
    for autoscaling, replicas in ((False, 1), (True, 3), (True, 4)):
        cluster.has(model(1, replicas, autoscaling=autoscaling))
        cluster.store.put(kinds.DEPLOYMENT, child(kinds.DEPLOYMENT, "m", 3))
        cluster.has(model(2, 7, autoscaling=autoscaling), told=False)
        assert await cluster.replicas() == replicas
