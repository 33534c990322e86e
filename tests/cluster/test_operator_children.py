"""What stands around the pods, who scales them and groups over several nodes, on a real control plane."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from guided_contract import names
from support.cluster import Cluster
from support.kubelet import Kubelet
from support.optional_apis import installed
from support.resources import await_condition, conditions, items, model
from support.waiting import eventually
from support.worker_sets import WorkerSets

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]
Object = dict[str, Any]
METRICS = {"metrics": {"labels": {"release": "prometheus"}}}
HPA = Path(__file__).parents[2] / "manifests/samples/scaling/hpa.yaml"
AROUND = "poddisruptionbudgets,networkpolicies"


def kinds_of(cluster: Cluster, namespace: str, kinds: str = AROUND) -> set[str]:
    return {each["kind"] for each in items(cluster, namespace, kinds)}


@pytest.mark.usefixtures("kubelet")
def test_children_are_made_repaired_and_pruned(api_server: Cluster, namespace: str) -> None:
    theirs = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "m", "namespace": namespace},
        "spec": {"podSelector": {"matchLabels": {"app": "theirs"}}},
    }
    api_server.apply(theirs)
    api_server.apply(model(namespace, replicas=3, networkPolicy={}))
    conflict = await_condition(api_server, namespace, "Ready", "False", "NameConflict")
    assert conflict["message"].startswith("NetworkPolicy m exists")
    api_server.kubectl("delete", "networkpolicy", "m", "-n", namespace)
    await_condition(api_server, namespace, "Ready", "True")
    assert kinds_of(api_server, namespace) == {"PodDisruptionBudget", "NetworkPolicy"}
    # Drift is repaired, another manager's field is left alone.
    api_server.kubectl("annotate", "networkpolicy/m", "somebody=else", "-n", namespace)
    opened = json.dumps({"spec": {"ingress": [{}]}})
    api_server.kubectl("patch", "networkpolicy/m", "--type=merge", "-p", opened, "-n", namespace)
    api_server.kubectl("delete", "poddisruptionbudget/m", "-n", namespace)

    def repaired() -> bool:
        policy = api_server.get("networkpolicy", "m", "-n", namespace)
        closed = all(rule.get("from") for rule in policy["spec"]["ingress"])
        return closed and policy["metadata"]["annotations"].get("somebody") == "else"

    eventually(repaired, what="the policy is closed again")
    eventually(lambda: "PodDisruptionBudget" in kinds_of(api_server, namespace), what="the budget is back")
    pods = {each["metadata"]["uid"] for each in items(api_server, namespace, "pods")}
    api_server.apply(model(namespace, replicas=3))
    eventually(lambda: kinds_of(api_server, namespace) == {"PodDisruptionBudget"}, what="the rest is pruned")
    assert pods == {each["metadata"]["uid"] for each in items(api_server, namespace, "pods")}


@pytest.mark.usefixtures("kubelet")
def test_kubernetes_own_autoscaler_scales_the_model(api_server: Cluster, namespace: str) -> None:
    def pods() -> set[str]:
        return {each["metadata"]["uid"] for each in items(api_server, namespace, "pods")}

    def scaled(count: int) -> None:
        def is_there() -> bool:
            found: int = api_server.get("gm", "m", "-n", namespace)["spec"]["replicas"]
            return found == count

        eventually(is_there, timeout_s=90, what="the real autoscaler writes the scale subresource")
        ready = f"{count} of {count} pods are ready"
        eventually(lambda: conditions(api_server, namespace)["Ready"]["message"] == ready, what=ready)

    def bounded(least: int, most: int) -> Object:
        hpa: Object = yaml.safe_load(HPA.read_text())
        hpa["metadata"]["namespace"] = namespace
        hpa["spec"]["scaleTargetRef"]["name"] = "m"
        return {**hpa, "spec": {**hpa["spec"], "minReplicas": least, "maxReplicas": most}}

    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    first = pods()
    api_server.apply(bounded(3, 3))
    scaled(3)
    three = pods()
    assert first < three, "none of those that were there went"
    api_server.apply(model(namespace))  # without replicas, which an apply leaves to whom they are
    api_server.apply(bounded(1, 2))
    scaled(2)
    assert pods() < three
    current = api_server.get("hpa", "tiny", "-n", namespace)["status"]["currentReplicas"]
    assert current in {2, 3}, "it reads the scale subresource"
    # Taken away, what it said last stays.
    api_server.kubectl("delete", "hpa", "tiny", "-n", namespace)
    api_server.apply(model(namespace, networkPolicy={}))
    eventually(lambda: "NetworkPolicy" in kinds_of(api_server, namespace), what="a pass after that")
    scaled(2)


def test_several_nodes_are_groups_once_their_api_is_there(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    spread = {"tensor": 2, "nodes": 2}
    rollout = {"maxUnavailable": "25%"}  # of one or two groups: none
    apis = ("leaderworkersets", "podmonitors")
    monitors = "podmonitors.monitoring.coreos.com"
    api_server.apply(model(namespace, parallelism=spread, rollout=rollout, telemetry=METRICS))
    missing = await_condition(api_server, namespace, "Ready", "False", "APIMissing")
    assert "LeaderWorkerSet (leaderworkerset.x-k8s.io/v1)" in missing["message"]
    missing = await_condition(api_server, namespace, "AuxiliaryResourcesReady", "False", "APIMissing")
    assert "PodMonitor (monitoring.coreos.com/v1)" in missing["message"]
    with installed(api_server, *apis), WorkerSets(api_server.kubeconfig, namespace):
        ready = await_condition(api_server, namespace, "Ready", "True")
        await_condition(api_server, namespace, "AuxiliaryResourcesReady", "True")
        assert kinds_of(api_server, namespace, monitors) == {"PodMonitor"}
        assert ready["message"] == "2 of 2 pods are ready"
        status = api_server.get("gm", "m", "-n", namespace)["status"]
        assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (1, 1, 1)
        assert status["selector"] == f"{names.LABEL_NAME}=m,{names.LABEL_NODE}=0"
        pods = {each["metadata"]["name"] for each in items(api_server, namespace, "pods")}
        assert pods == {"m-nodes-0", "m-nodes-0-1"}
        service = api_server.get("service", "m-nodes", "-n", namespace)["spec"]
        assert service["clusterIP"] == "None"
        assert kinds_of(api_server, namespace) == {"PodDisruptionBudget", "NetworkPolicy"}
        api_server.kubectl("scale", "gm/m", "--replicas=2", "-n", namespace)
        eventually(lambda: conditions(api_server, namespace)["Ready"]["message"].startswith("4 of 4"))
        changed = model(namespace, parallelism=spread, replicas=2, rollout=rollout)
        changed["spec"]["engine"]["env"] = [{"name": "APP_EXTRA", "value": "1"}]
        api_server.apply(changed)
        eventually(lambda: conditions(api_server, namespace)["Ready"]["observedGeneration"] == 3)
        await_condition(api_server, namespace, "Ready", "True")
        eventually(lambda: not items(api_server, namespace, monitors), what="it is asked for no longer")
        workers = "leaderworkersets.leaderworkerset.x-k8s.io"
        api_server.kubectl("label", f"{workers}/m-nodes", f"{names.LABEL_NAME}-", "-n", namespace)
        eventually(lambda: items(api_server, namespace, workers), what="the set's label is repaired")
        pods = {each["metadata"]["uid"] for each in items(api_server, namespace, "pods")}
        ended = {"name": "engine", "image": "x", "imageID": "", "ready": False, "restartCount": 1}
        kubelet.trouble = [{**ended, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
        eventually(
            lambda: pods.isdisjoint(each["metadata"]["uid"] for each in items(api_server, namespace, "pods")),
            what="the groups have begun again",
        )
        kubelet.trouble = []
        await_condition(api_server, namespace, "Ready", "True")
        api_server.kubectl("delete", "gm/m", "-n", namespace)
        eventually(lambda: not items(api_server, namespace, f"pods,{workers}"), timeout_s=60)
