"""The real operator process, with the rights of its service account, on a real API server and controllers."""

import json
import signal
import time
from typing import Any

import pytest

from guided_contract import names, status
from support.cluster import Cluster, KubectlError
from support.kstatus import kstatus
from support.kubelet import Kubelet
from support.operator_process import Operator
from support.resources import await_condition, conditions, deployment, environment, items, model
from support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]
Object = dict[str, Any]


@pytest.mark.usefixtures("kubelet")
def test_model_gets_its_children_and_becomes_ready(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace, replicas=2))
    ready = await_condition(api_server, namespace, "Ready", "True", "PodsReady")
    assert ready["message"] == "2 of 2 pods are ready"
    found = items(api_server, namespace)
    assert sorted(each["kind"] for each in found) == [
        "ConfigMap",
        "ConfigMap",
        "ControllerRevision",
        "Deployment",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
    ]
    assert all(each["metadata"]["ownerReferences"][0]["controller"] for each in found)
    gm = api_server.get("gm", "m", "-n", namespace)
    assert "finalizers" not in gm["metadata"]
    assert set(gm["metadata"].get("annotations", {})) <= {"kubectl.kubernetes.io/last-applied-configuration"}
    seen = gm["status"]
    assert (seen["replicas"], seen["readyReplicas"], seen["updatedReplicas"]) == (2, 2, 2)
    assert seen["observedGeneration"] == gm["metadata"]["generation"]
    assert {each["type"]: each["status"] for each in seen["conditions"]} == {
        "Ready": "True",
        "Available": "True",
        "Progressing": "False",
        "Compatible": "True",
        "GuidedDecoding": "True",
        "AuxiliaryResourcesReady": "True",
    }
    assert (seen["ranks"]["total"], seen["ranks"]["missing"]) == (4, 0)
    versions = {"vllm": "0.32.0", "xgrammar": "0.2.8", "llguidance": "1.7.6"}
    assert seen["resolved"]["versions"] == versions


@pytest.mark.usefixtures("kubelet")
def test_scaling_through_the_subresource_and_to_zero(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    api_server.kubectl("scale", "gm/m", "--replicas=3", "-n", namespace)
    eventually(lambda: conditions(api_server, namespace)["Ready"]["message"].startswith("3 of 3"))
    assert len(api_server.get("controllerrevisions", "-n", namespace)["items"]) == 1, "no new revision"
    api_server.kubectl("scale", "gm/m", "--replicas=0", "-n", namespace)
    await_condition(api_server, namespace, "Progressing", "False", "ScaledToZero")
    await_condition(api_server, namespace, "Ready", "False", "ScaledToZero")
    eventually(lambda: not items(api_server, namespace, "pods"))


def test_scaling_asks_for_one_object_and_no_other_of_its_name(api_server: Cluster, namespace: str) -> None:
    """The operator scales what it has seen, and a Deployment may be another one meanwhile."""
    api_server.apply(model(namespace))
    eventually(lambda: items(api_server, namespace, "deployments"))
    patch = {"metadata": {"uid": "5c4b3a29-0000-4000-8000-000000000000"}, "spec": {"replicas": 9}}
    asked = ("patch", "deployment/m", "-n", namespace, "--type=merge", f"--patch={json.dumps(patch)}")
    with pytest.raises(KubectlError, match=r"metadata\.uid.*immutable"):
        api_server.kubectl(*asked)
    assert api_server.get("deployment/m", "-n", namespace)["spec"]["replicas"] == 1


@pytest.mark.usefixtures("kubelet")
def test_named_grammars_are_followed_and_restart_nothing(api_server: Cluster, namespace: str) -> None:
    def ask(*grammars: str) -> None:
        named = [
            {"name": name, "kind": "Regex", "configMapKeyRef": {"name": "texts", "key": name}}
            for name in grammars
        ]
        api_server.apply(model(namespace, guidedDecoding={"grammars": named}))

    def look() -> None:
        """Have the operator look now: by itself it looks at others' ConfigMaps once a minute."""
        now = f"look={time.monotonic_ns()}"
        api_server.kubectl("annotate", "gm/m", now, "--overwrite", "-n", namespace)

    def texts(**data: str) -> None:
        metadata = {"name": "texts", "namespace": namespace}
        api_server.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        look()

    def mounted(**wanted: str) -> None:
        def are_mounted() -> bool:
            data = api_server.get("configmap", "m-grammars", "-n", namespace).get("data") or {}
            return data == {name.replace("_", "."): text for name, text in wanted.items()}

        eventually(are_mounted, what=str(wanted))

    def lacks_the_config_map() -> bool:
        said: str = conditions(api_server, namespace).get("GuidedDecoding", {}).get("message", "")
        return "one: there is no ConfigMap texts" in said

    ask("one")
    eventually(lacks_the_config_map, what="what is missing is told by name")
    texts(one="a+")
    mounted(one_Regex="a+")
    await_condition(api_server, namespace, "Ready", "True")
    generation = deployment(api_server, namespace)["metadata"]["generation"]
    texts(one="b+", two="c")
    ask("one", "two")
    mounted(one_Regex="b+", two_Regex="c")
    api_server.kubectl("delete", "configmap", "texts", "-n", namespace)
    look()
    eventually(lacks_the_config_map, what="its loss is seen")
    mounted(one_Regex="b+", two_Regex="c")  # pods keep what they have
    ask()
    mounted()
    assert len(api_server.get("controllerrevisions", "-n", namespace)["items"]) == 1, "no new revision"
    assert deployment(api_server, namespace)["metadata"]["generation"] == generation, "no pod restarted"


def test_readiness_is_lost_and_regained_with_its_reason(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    kubelet.ready = False
    kubelet.say(ready=False, reason="GrammarsPending", message="2 of 3 grammars are compiled")
    api_server.apply(model(namespace))
    pending = await_condition(api_server, namespace, "GuidedDecoding", "False", "GrammarsPending")
    assert "2 of 3 grammars are compiled" in pending["message"]
    held = await_condition(api_server, namespace, "Ready", "False", "GrammarsPending")
    assert "2 of 3 grammars are compiled" in held["message"]
    kubelet.say()
    kubelet.ready = True
    await_condition(api_server, namespace, "Ready", "True")
    await_condition(api_server, namespace, "GuidedDecoding", "True", "Active")
    kubelet.trouble = [
        {
            "name": "engine",
            "image": "x",
            "imageID": "",
            "ready": False,
            "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {
                "terminated": {"exitCode": 139, "reason": "Error", "startedAt": None, "finishedAt": None}
            },
        }
    ]
    crashed = await_condition(api_server, namespace, "Ready", "False", "ContainerCrashed")
    assert "exit code 139" in crashed["message"]
    await_condition(api_server, namespace, "Available", "False", "NoReadyPods")
    kubelet.trouble = []
    await_condition(api_server, namespace, "Ready", "True")


def test_pod_that_no_node_takes_is_told(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace))  # and nobody plays a kubelet: the real scheduler speaks
    waiting = await_condition(api_server, namespace, "Ready", "False", "Unschedulable")
    assert "nodes available" in waiting["message"]
    assert kstatus(api_server.get("gm", "m", "-n", namespace)) == "InProgress"


def test_ready_of_an_older_generation_ends_no_wait(
    api_server: Cluster, namespace: str, kubelet: Kubelet, operator: Operator
) -> None:
    del kubelet
    wait = ("wait", "--for=condition=Ready", "gm/m", "-n", namespace)
    api_server.apply(model(namespace))
    api_server.kubectl(*wait, "--timeout=30s")
    assert kstatus(api_server.get("gm", "m", "-n", namespace)) == "Current"
    operator.send(signal.SIGSTOP)  # for less than its Lease allows
    try:
        api_server.kubectl("scale", "gm/m", "--replicas=2", "-n", namespace)
        with pytest.raises(KubectlError, match="timed out"):
            api_server.kubectl(*wait, "--timeout=1s")
        assert kstatus(api_server.get("gm", "m", "-n", namespace)) == "InProgress"
        api_server.apply(model(namespace, "new"))
        assert kstatus(api_server.get("gm", "new", "-n", namespace)) == "InProgress"
        assert conditions(api_server, namespace)["Ready"]["status"] == "True", "that of the generation before"
    finally:
        operator.send(signal.SIGCONT)
    api_server.kubectl(*wait, "--timeout=30s")
    assert api_server.get("gm", "m", "-n", namespace)["status"]["readyReplicas"] == 2


def test_sidecar_that_lies_or_floods_hurts_nobody(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    kubelet.page = b"[" * (1 << 20)
    api_server.apply(model(namespace))
    silent = await_condition(api_server, namespace, "GuidedDecoding", "Unknown", "SidecarUnreachable")
    assert "larger than" in silent["message"]
    await_condition(api_server, namespace, "Ready", "True")
    # Names twice, numbers below zero and endless text: what the CRD would refuse is cut before it is written.
    twice = [status.RankStatus(rank=0, state="Missing"), status.RankStatus(rank=-1, state="Connected")]
    kubelet.say(ready=False, reason="A reason/of its own" * 40, message="m" * 9000, ranks=[*twice, *twice])
    kubelet.ready = False
    lied = await_condition(api_server, namespace, "GuidedDecoding", "False", "NotReady")
    assert len(lied["message"]) <= 1024
    seen = api_server.get("gm", "m", "-n", namespace)["status"]
    assert seen["ranks"] == {"total": 1, "missing": 1, "desynced": 0}


@pytest.mark.usefixtures("kubelet")
def test_drift_is_repaired_and_others_fields_are_left(api_server: Cluster, namespace: str) -> None:
    odd = model(namespace)  # characters that JSON, YAML and Go write each in their own way
    odd["spec"]["engine"]["env"] = [{"name": "APP_ODD", "value": '<&>é😀\u2028\x7f\t"'}]
    api_server.apply(odd)
    await_condition(api_server, namespace, "Ready", "True")
    api_server.kubectl("annotate", "deployment/m", "somebody=else", "-n", namespace)
    api_server.kubectl("scale", "deployment/m", "--replicas=4", "-n", namespace)
    eventually(lambda: deployment(api_server, namespace)["spec"]["replicas"] == 1, what="replicas repaired")
    assert deployment(api_server, namespace)["metadata"]["annotations"]["somebody"] == "else"
    api_server.kubectl("delete", "service/m", "-n", namespace)
    eventually(lambda: "Service" in [each["kind"] for each in items(api_server, namespace)])
    [stored] = [each for each in items(api_server, namespace) if each["kind"] == "ControllerRevision"]
    name = f"controllerrevision/{stored['metadata']['name']}"
    api_server.kubectl("label", name, "app.kubernetes.io/name=other", "--overwrite", "-n", namespace)
    api_server.kubectl("annotate", "guidedmodel/m", "look=now", "-n", namespace)  # what is not watched
    eventually(
        lambda: (
            api_server.get(name, "-n", namespace)["metadata"]["labels"]["app.kubernetes.io/name"]
            == "guidedmodel"
        ),
        what="a sealed object's label is repaired",
    )
    # Without our label the object is invisible to the watch, but still ours.
    api_server.kubectl("label", "serviceaccount/m", f"{names.LABEL_NAME}-", "-n", namespace)
    api_server.kubectl("annotate", "guidedmodel/m", "look=again", "--overwrite", "-n", namespace)
    eventually(lambda: "ServiceAccount" in [each["kind"] for each in items(api_server, namespace)])


@pytest.mark.usefixtures("kubelet")
def test_field_that_is_no_longer_wanted_goes(api_server: Cluster, namespace: str) -> None:
    wanted = model(namespace)
    wanted["spec"]["engine"]["env"] = [{"name": "APP_EXTRA", "value": "1"}]
    api_server.apply(wanted)
    await_condition(api_server, namespace, "Ready", "True")
    assert "APP_EXTRA" in environment(api_server, namespace)
    api_server.kubectl("scale", "gm/m", "--replicas=2", "-n", namespace)  # which is no apply
    eventually(lambda: conditions(api_server, namespace)["Ready"]["message"].startswith("2 of 2"))
    wanted["spec"]["engine"]["env"] = []
    api_server.apply(wanted)
    eventually(lambda: "APP_EXTRA" not in environment(api_server, namespace), what="the variable is removed")
    generation = api_server.get("gm/m", "-n", namespace)["metadata"]["generation"]
    eventually(lambda: conditions(api_server, namespace)["Ready"]["observedGeneration"] == generation)
    await_condition(api_server, namespace, "Ready", "True")
    assert len(api_server.get("controllerrevisions", "-n", namespace)["items"]) == 2


@pytest.mark.usefixtures("kubelet")
def test_model_made_anew_at_once_becomes_ready(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    first = api_server.get("gm", "m", "-n", namespace)["metadata"]["uid"]
    api_server.kubectl("delete", "gm/m", "-n", namespace, "--wait=false")
    api_server.apply(model(namespace))  # while its namesake's children are still there
    await_condition(api_server, namespace, "Ready", "True")
    second = api_server.get("gm", "m", "-n", namespace)["metadata"]["uid"]
    assert second != first
    assert deployment(api_server, namespace)["metadata"]["ownerReferences"][0]["uid"] == second
