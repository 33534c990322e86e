"""A model's life with the real operator, in its account's rights, on a real API server and controllers."""

import signal
from pathlib import Path

import pytest
import yaml

from guided_contract import names
from support.cluster import Cluster, KubectlError
from support.operator_process import Operator
from support.optional_apis import installed
from support.resources import CHILDREN, await_condition, conditions, deployment, environment, items, model
from support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator", "kubelet")]
HPA = Path(__file__).parents[2] / "manifests/samples/scaling/hpa.yaml"
METRICS = {"metrics": {"labels": {"release": "prometheus"}}}
ALL = {
    *("ConfigMap", "ControllerRevision", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"),
    "NetworkPolicy",
}
KINDS = f"{CHILDREN},networkpolicies"


def kinds_of(cluster: Cluster, namespace: str) -> set[str]:
    return {each["kind"] for each in items(cluster, namespace, KINDS)}


def pods(cluster: Cluster, namespace: str) -> set[str]:
    return {each["metadata"]["uid"] for each in items(cluster, namespace, "pods")}


def test_a_model_gets_its_children_and_becomes_ready(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace, replicas=2, networkPolicy={}))
    ready = await_condition(api_server, namespace, "Ready", "True", "PodsReady")
    assert ready["message"] == "2 of 2 pods are ready"
    made = items(api_server, namespace, KINDS)
    assert {each["kind"] for each in made} == ALL
    assert all(each["metadata"]["ownerReferences"][0]["controller"] for each in made)
    gm = api_server.get("gm", "m", "-n", namespace)
    assert "finalizers" not in gm["metadata"]
    assert set(gm["metadata"].get("annotations", {})) <= {"kubectl.kubernetes.io/last-applied-configuration"}
    seen = gm["status"]
    assert (seen["replicas"], seen["readyReplicas"], seen["updatedReplicas"]) == (2, 2, 2)
    assert seen["observedGeneration"] == gm["metadata"]["generation"]
    assert {each["type"]: each["status"] for each in seen["conditions"]} == {
        **dict.fromkeys(("Ready", "Available", "Compatible", "GuidedDecoding"), "True"),
        "AuxiliaryResourcesReady": "True",
        "Progressing": "False",
    }
    assert (seen["ranks"]["total"], seen["ranks"]["missing"]) == (4, 0)
    assert seen["resolved"]["versions"]["vllm"] == "0.32.0"


def test_drift_is_repaired_and_what_is_no_longer_wanted_goes(api_server: Cluster, namespace: str) -> None:
    wanted = model(namespace, networkPolicy={})
    # Characters that JSON, YAML and Go write each in their own way.
    wanted["spec"]["engine"]["env"] = [{"name": "APP_ODD", "value": '<&>é😀\u2028\x7f\t"'}]
    api_server.apply(wanted)
    await_condition(api_server, namespace, "Ready", "True")

    # What others add stays, what they change does not.
    api_server.kubectl("annotate", "deployment/m", "somebody=else", "-n", namespace)
    api_server.kubectl("scale", "deployment/m", "--replicas=4", "-n", namespace)
    eventually(lambda: deployment(api_server, namespace)["spec"]["replicas"] == 1, what="replicas repaired")
    # Which of the pods goes is the choice of Kubernetes, once others are as ready as the first.
    eventually(lambda: len(pods(api_server, namespace)) == 1, what="one pod")
    before = pods(api_server, namespace)
    assert deployment(api_server, namespace)["metadata"]["annotations"]["somebody"] == "else"
    api_server.kubectl("delete", "service/m", "poddisruptionbudget/m", "-n", namespace)
    eventually(lambda: kinds_of(api_server, namespace) == ALL, what="both are back")
    # Without our label an object is invisible to the watch, but still ours.
    api_server.kubectl("label", "serviceaccount/m", f"{names.LABEL_NAME}-", "-n", namespace)
    api_server.kubectl("annotate", "guidedmodel/m", "look=now", "-n", namespace)
    eventually(lambda: kinds_of(api_server, namespace) == ALL, what="the label is back")
    assert pods(api_server, namespace) == before

    api_server.apply(model(namespace))
    eventually(lambda: "NetworkPolicy" not in kinds_of(api_server, namespace), what="the policy is pruned")
    eventually(lambda: "APP_ODD" not in environment(api_server, namespace), what="the variable is removed")
    await_condition(api_server, namespace, "Ready", "True")
    assert len(api_server.get("controllerrevisions", "-n", namespace)["items"]) == 2


def test_a_model_that_is_made_anew_at_once_becomes_ready(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    first = api_server.get("gm", "m", "-n", namespace)["metadata"]["uid"]
    api_server.kubectl("delete", "gm/m", "-n", namespace, "--wait=false")
    api_server.apply(model(namespace))  # while its namesake's children are still there
    await_condition(api_server, namespace, "Ready", "True")
    second = api_server.get("gm", "m", "-n", namespace)["metadata"]["uid"]
    assert second != first
    assert deployment(api_server, namespace)["metadata"]["ownerReferences"][0]["uid"] == second


def test_words_that_the_api_server_refuses_are_told_while_pods_go_on(
    api_server: Cluster, namespace: str
) -> None:
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    running = pods(api_server, namespace)
    for wrong, named in (
        ({"affinity": {"nodeAffinty": {}}}, "nodeAffinty"),
        ({"tolerations": [{"operator": "Exists", "value": "x"}]}, "value must be empty"),
        ({"labels": {"a": "b c"}}, "b c"),
    ):
        api_server.apply(model(namespace, pod=wrong))

        def is_told(named: str = named) -> bool:
            told = conditions(api_server, namespace)["Ready"]
            return told["reason"] == "ApplyRefused" and named in told["message"]

        eventually(is_told, timeout_s=30, what=named)
        assert pods(api_server, namespace) == running
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    assert pods(api_server, namespace) == running


def test_a_model_is_scaled_by_its_subresource_and_to_none(
    api_server: Cluster, namespace: str, operator: Operator
) -> None:
    """What was ready before ends no wait, and no revision is new."""
    wait = ("wait", "--for=condition=Ready", "gm/m", "-n", namespace)
    api_server.apply(model(namespace))
    api_server.kubectl(*wait, "--timeout=30s")
    operator.send(signal.SIGSTOP)  # for less than its Lease allows
    try:
        api_server.kubectl("scale", "gm/m", "--replicas=2", "-n", namespace)
        with pytest.raises(KubectlError, match="timed out"):
            api_server.kubectl(*wait, "--timeout=1s")
    finally:
        operator.send(signal.SIGCONT)
    api_server.kubectl(*wait, "--timeout=30s")
    assert api_server.get("gm", "m", "-n", namespace)["status"]["readyReplicas"] == 2
    revisions = api_server.get("controllerrevisions", "-n", namespace, "-l", f"{names.LABEL_NAME}=m")
    assert len(revisions["items"]) == 1

    api_server.kubectl("scale", "gm/m", "--replicas=0", "-n", namespace)
    await_condition(api_server, namespace, "Ready", "False", "ScaledToZero")
    eventually(lambda: not items(api_server, namespace, "pods"))


def test_kubernetes_own_autoscaler_scales_a_model(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    first = pods(api_server, namespace)
    hpa = yaml.safe_load(HPA.read_text())
    hpa["metadata"]["namespace"] = namespace
    hpa["spec"]["scaleTargetRef"]["name"] = "m"
    api_server.apply({**hpa, "spec": {**hpa["spec"], "minReplicas": 3, "maxReplicas": 3}})

    def is_scaled() -> bool:
        return bool(conditions(api_server, namespace)["Ready"]["message"] == "3 of 3 pods are ready")

    eventually(is_scaled, timeout_s=90, what="the real autoscaler writes the scale subresource")
    assert first < pods(api_server, namespace), "none of those that were there went"
    api_server.apply(model(namespace, drain={"timeout": "90s"}))  # an apply leaves replicas to whom they are
    generation = api_server.get("gm/m", "-n", namespace)["metadata"]["generation"]
    eventually(lambda: conditions(api_server, namespace)["Ready"]["observedGeneration"] == generation)
    assert api_server.get("gm", "m", "-n", namespace)["spec"]["replicas"] == 3


def test_several_nodes_are_groups_once_their_api_is_there(api_server: Cluster, namespace: str) -> None:
    """Whose pods another's controller makes."""

    def replicas() -> list[int]:
        found = items(api_server, namespace, "leaderworkersets.leaderworkerset.x-k8s.io")
        return [each["spec"]["replicas"] for each in found]

    spread = {"parallelism": {"tensor": 2, "nodes": 2}, "rollout": {"maxUnavailable": "25%"}}
    api_server.apply(model(namespace, **spread, telemetry=METRICS))
    await_condition(api_server, namespace, "Ready", "False", "APIMissing")
    await_condition(api_server, namespace, "AuxiliaryResourcesReady", "False", "APIMissing")
    with installed(api_server, "leaderworkersets", "podmonitors"):
        await_condition(api_server, namespace, "AuxiliaryResourcesReady", "True")
        assert items(api_server, namespace, "podmonitors.monitoring.coreos.com")
        assert replicas() == [1]
        api_server.kubectl("scale", "gm/m", "--replicas=2", "-n", namespace)
        eventually(lambda: replicas() == [2], what="the groups are scaled")
        api_server.kubectl("delete", "gm/m", "-n", namespace)
        eventually(lambda: not replicas(), timeout_s=60, what="they go")
