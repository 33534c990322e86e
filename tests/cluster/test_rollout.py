"""How a change reaches the pods, on a real API server with real controllers."""

import os
import random
import time
from typing import Any

import pytest

from guided_contract import names
from guided_operator.api import parse
from guided_operator.builders.revision_key import pod_key
from support.cluster import Cluster
from support.kubelet import Kubelet
from support.pod_floor import PodFloor
from support.resources import conditions, items, model
from support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]
Object = dict[str, Any]
STEPS = 16
FEWEST_ENDED = 3


def variant(namespace: str, number: int, replicas: int = 3, **rollout: Any) -> Object:
    """Return a model whose pods differ by a number."""
    wanted = model(namespace, replicas=replicas, rollout=rollout)
    wanted["spec"]["engine"]["env"] = [{"name": "APP_NUMBER", "value": str(number)}]
    return wanted


def key(number: int) -> str:
    return pod_key(parse(variant("default", number)))


class Storm:
    """Drawn changes of one model, with what the floor of ready pods is after each."""

    def __init__(self, cluster: Cluster, namespace: str, kubelet: Kubelet) -> None:
        self._cluster, self._namespace, self._kubelet = cluster, namespace, kubelet
        self._draw = random.Random(int(os.environ.get("SEED", "6")))
        self.number, self.replicas = 1, 3
        self.rollout: Object = {}
        self.log: list[str] = []
        self.apply()
        self.settle()

    def step(self, watch: PodFloor) -> None:
        """Do one thing, and leave the controllers some time or none."""
        draw = self._draw
        match draw.choice(("change", "change", "change", "hold", "scale", "pause", "back")):
            case "change":  # to what may be the one of before, also in the middle of a rollout
                self.number = draw.randint(1, 4)
            case "hold":  # new pods of one variant do not get ready; those that are ready stay so
                number = draw.randint(0, 4)
                self._kubelet.unready_revision = key(number) if number else ""
            case "scale":  # more of them may be ready only once they are there
                self.replicas = draw.randint(2, 4)
                watch.floor = min(watch.floor, self.replicas - 1)
                watch.most = max(watch.most, self.replicas)
            case "pause":  # or go on
                self.rollout = {**self.rollout, "paused": not self.rollout.get("paused", False)}
            case "back":  # to a stored revision, or let the spec hold again
                stored = self._cluster.get("controllerrevisions", "-n", self._namespace)["items"]
                keys = [each["metadata"]["labels"][names.LABEL_REVISION] for each in stored]
                chosen = draw.choice([*keys, ""])
                self.rollout = {**self.rollout, "rollbackTo": chosen} if chosen else {}
        self.log.append(f"{self.number} {self.replicas} {self.rollout} {self._kubelet.unready_revision}")
        self.apply()
        time.sleep(draw.choice([0.0, 0.0, 0.2, 0.6]))

    def apply(self) -> None:
        self._cluster.apply(variant(self._namespace, self.number, self.replicas, **self.rollout))

    def settle(self) -> None:
        """Wait until all pods, and no others, are of the variant and ready."""

        def is_settled() -> bool:
            gm = self._cluster.get("gm", "m", "-n", self._namespace)
            ready = conditions(self._cluster, self._namespace).get("Ready", {})
            seen = ready.get("observedGeneration") == gm["metadata"]["generation"]
            told = (seen, ready.get("status"), gm["status"].get("revision"))
            return told == (True, "True", key(self.number))

        eventually(is_settled, timeout_s=60, what=f"all pods are of variant {self.number}")
        found = (pod["metadata"] for pod in items(self._cluster, self._namespace, "pods"))
        live = [each["labels"][names.LABEL_REVISION] for each in found if "deletionTimestamp" not in each]
        assert live == [key(self.number)] * self.replicas


def test_ready_pods_never_fall_below_the_floor_whatever_is_asked_for(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    """Reverts, rollbacks and scaling come in the middle of rollouts that move, hang or are paused."""
    storm = Storm(api_server, namespace, kubelet)
    with PodFloor(api_server.kubeconfig, namespace, floor=2, most=3) as watch:
        eventually(lambda: watch.ready == watch.wanted == 3, what="the watch has seen all pods")
        while len(storm.log) < STEPS or (watch.ended <= FEWEST_ENDED and len(storm.log) < 3 * STEPS):
            storm.step(watch)
        kubelet.unready_revision, storm.rollout = "", {}
        storm.apply()
        storm.settle()
    assert not watch.broken, "\n".join([*watch.broken, *storm.log])
    assert watch.ended > FEWEST_ENDED, "nothing was shown"
