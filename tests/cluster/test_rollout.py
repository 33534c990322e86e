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
from support.resources import await_condition, conditions, deployment, items, model
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


def live(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Return the revision of each pod that is not ending, by the pod's uid."""
    return {
        pod["metadata"]["uid"]: pod["metadata"]["labels"][names.LABEL_REVISION]
        for pod in items(cluster, namespace, "pods")
        if "deletionTimestamp" not in pod["metadata"]
    }


def settled(cluster: Cluster, namespace: str, number: int, replicas: int = 3) -> None:
    """Wait until all pods, and no others, are of a variant and ready."""

    def is_settled() -> bool:
        gm = cluster.get("gm", "m", "-n", namespace)
        ready = conditions(cluster, namespace).get("Ready", {})
        seen = ready.get("observedGeneration") == gm["metadata"]["generation"]
        return (seen, ready.get("status"), gm["status"].get("revision")) == (True, "True", key(number))

    eventually(is_settled, timeout_s=60, what=f"all pods are of variant {number}")
    assert list(live(cluster, namespace).values()) == [key(number)] * replicas


def test_rollback_and_restart(api_server: Cluster, namespace: str, kubelet: Kubelet) -> None:
    del kubelet
    api_server.apply(variant(namespace, 1, replicas=1))
    settled(api_server, namespace, 1, replicas=1)
    first = deployment(api_server, namespace)["spec"]["template"]
    api_server.apply(variant(namespace, 2, replicas=1))
    settled(api_server, namespace, 2, replicas=1)
    second = set(live(api_server, namespace))

    api_server.apply(variant(namespace, 2, replicas=1, rollbackTo="0123456789"))
    refused = await_condition(api_server, namespace, "Compatible", "False", "Invalid")
    assert f"stored revisions: {key(2)}, {key(1)}" in refused["message"]
    assert set(live(api_server, namespace)) == second, "what runs goes on"

    api_server.apply(variant(namespace, 2, replicas=1, rollbackTo=key(1)))
    held = await_condition(api_server, namespace, "Progressing", "False", "RolledBack")
    assert key(2) in held["message"]
    await_condition(api_server, namespace, "Ready", "True")
    assert set(live(api_server, namespace).values()) == {key(1)}
    assert deployment(api_server, namespace)["spec"]["template"] == first
    api_server.apply(variant(namespace, 2, replicas=1))
    settled(api_server, namespace, 2, replicas=1)

    before = set(live(api_server, namespace))
    api_server.apply(variant(namespace, 2, replicas=1, restartToken="now"))
    restarted = pod_key(parse(variant("default", 2, restartToken="now")))
    eventually(lambda: set(live(api_server, namespace).values()) == {restarted}, what="the pod is replaced")
    assert not before & set(live(api_server, namespace))


class Storm:
    """Drawn changes of one model, with what the floor of ready pods is after each."""

    def __init__(self, cluster: Cluster, namespace: str, kubelet: Kubelet, watch: PodFloor) -> None:
        self._cluster, self._namespace, self._kubelet, self._watch = cluster, namespace, kubelet, watch
        self._draw = random.Random(int(os.environ.get("SEED", "6")))
        self.number, self.replicas = 1, 3
        self.rollout: Object = {}
        self.log: list[str] = []

    def step(self) -> None:
        """Do one thing, and leave the controllers some time or none."""
        likely = [self.change, self.change, self.change]
        step = self._draw.choice([*likely, self.hold, self.scale, self.lose, self.pause, self.back])
        self.log.append(step())
        time.sleep(self._draw.choice([0.0, 0.0, 0.2, 0.6]))

    def apply(self) -> None:
        wanted = variant(self._namespace, self.number, self.replicas, **self.rollout)
        self._cluster.apply(wanted)

    def change(self) -> str:
        """Ask for another variant, which may be the one of before, also in the middle of a rollout."""
        self.number = self._draw.randint(1, 4)
        self.apply()
        return f"variant {self.number}"

    def hold(self) -> str:
        """Let one variant's new pods not get ready; those that are ready stay so."""
        number = self._draw.choice([0, 1, 2, 3, 4])
        self._kubelet.unready_revision = key(number) if number else ""
        return f"variant {number} does not get ready"

    def scale(self) -> str:
        """Ask for more or fewer pods; more of them may be ready only once they are there."""
        replicas = self._draw.randint(2, 4)
        self._watch.floor = min(self._watch.floor, replicas - 1)
        self._watch.most = max(self._watch.most, replicas)
        self.replicas = replicas
        self.apply()
        return f"{replicas} replicas"

    def pause(self) -> str:
        """Pause or go on."""
        self.rollout = {**self.rollout, "paused": not self.rollout.get("paused", False)}
        self.apply()
        return f"paused: {self.rollout['paused']}"

    def back(self) -> str:
        """Roll back to a stored revision, or let the spec hold again."""
        stored = self._cluster.get("controllerrevisions", "-n", self._namespace)["items"]
        keys = [each["metadata"]["labels"][names.LABEL_REVISION] for each in stored]
        chosen = self._draw.choice([*keys, ""])
        self.rollout = {**self.rollout, "rollbackTo": chosen} if chosen else {}
        self.apply()
        return f"back to {chosen or 'the spec'}"

    def lose(self) -> str:
        """Let a ready pod be lost; only while no controller is at work, which could not know of it yet."""
        self.calm()
        pods = sorted(pod["metadata"]["name"] for pod in items(self._cluster, self._namespace, "pods"))
        lost = self._draw.choice(pods)
        self._kubelet.unready_pods = frozenset({lost})
        left = self.replicas - 1
        eventually(
            lambda: deployment(self._cluster, self._namespace)["status"].get("readyReplicas", 0) == left,
            what="the Deployment's controller knows",
        )
        return f"{lost} lost"

    def calm(self) -> None:
        """Wait until all is as asked for; from then on the whole floor holds again."""
        self._kubelet.unready_revision, self._kubelet.unready_pods = "", frozenset()
        self.rollout = {}
        self.apply()
        settled(self._cluster, self._namespace, self.number, self.replicas)
        eventually(
            lambda: self._watch.ready == self._watch.wanted == self.replicas,
            what="the watch has seen all of it",
        )
        self._watch.floor, self._watch.most = self.replicas - 1, self.replicas


def test_ready_pods_never_fall_below_the_floor_whatever_is_asked_for(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    """Reverts, rollbacks and scaling come in the middle of rollouts that move, hang or are paused."""
    api_server.apply(variant(namespace, 1))
    settled(api_server, namespace, 1)
    with PodFloor(api_server.kubeconfig, namespace, floor=2, most=3) as watch:
        storm = Storm(api_server, namespace, kubelet, watch)
        while len(storm.log) < STEPS or (watch.ended <= FEWEST_ENDED and len(storm.log) < 3 * STEPS):
            storm.step()
        storm.calm()
    assert not watch.broken, "\n".join([*watch.broken, *storm.log, *watch.history])
    assert watch.ended > FEWEST_ENDED, "nothing was shown"
