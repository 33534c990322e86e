"""The real operator process, with the rights of its service account, on a real API server and controllers."""

import json
import time
from typing import Any

import pytest

from guided_contract import names, status
from guided_operator.api import parse
from guided_operator.builders.revision_key import pod_key
from support.cluster import Cluster, KubectlError
from support.kubelet import Kubelet
from support.resources import (
    CHILDREN,
    await_condition,
    conditions,
    deployment,
    environment,
    items,
    model,
)
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


def test_ranks_that_disagree_show_and_the_pod_stays_ready(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    told = "ranks disagreed about rank 1 in 3 comparisons; the requests were ended"
    ranks = [status.RankStatus(rank=rank, state="Connected", desyncs=3 * rank) for rank in (0, 1)]
    kubelet.say(desync=told, ranks=ranks)
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True", "PodsReady")
    assert told in await_condition(api_server, namespace, "GuidedDecoding", "False", "Desync")["message"]
    seen = api_server.get("gm", "m", "-n", namespace)["status"]
    assert seen["ranks"] == {"total": 2, "missing": 0, "desynced": 1}


def test_named_grammars_are_followed_and_restart_nothing(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    def grammar(name: str) -> Object:
        reference = {"name": "texts", "key": f"{name}.txt"}
        return {"name": name, "kind": "Regex", "configMapKeyRef": reference}

    def ring() -> None:
        """Have the operator look now: by itself it looks at others' ConfigMaps once a minute."""
        now = f"rung={time.monotonic_ns()}"
        api_server.kubectl("annotate", "gm/m", now, "--overwrite", "-n", namespace)

    def texts(**data: str) -> None:
        labels = {"name": "texts", "namespace": namespace}
        files = {f"{name}.txt": text for name, text in data.items()}
        api_server.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": labels, "data": files})
        ring()

    def mounted() -> Object:
        data: Object = api_server.get("configmap", "m-grammars", "-n", namespace).get("data") or {}
        return data

    kubelet.ready = False
    kubelet.say(ready=False, reason="GrammarsPending", message="1 of 1 named grammars are not loaded yet")
    api_server.apply(model(namespace, guidedDecoding={"grammars": [grammar("one")]}))
    missing = await_condition(api_server, namespace, "GuidedDecoding", "False", "GrammarsPending")
    assert missing["message"] == "one: there is no ConfigMap texts"
    assert mounted() == {"one.Absent": "there is no ConfigMap texts"}

    texts(one="a+")
    eventually(lambda: mounted() == {"one.Regex": "a+"}, what="the text is mounted")
    kubelet.say(grammars=[status.GrammarStatus(name="one", state="Ready")])
    kubelet.ready = True
    await_condition(api_server, namespace, "Ready", "True")
    await_condition(api_server, namespace, "GuidedDecoding", "True", "Active")
    counts = api_server.get("gm", "m", "-n", namespace)["status"]["grammars"]
    assert counts == {"ready": 1, "pending": 0, "stale": 0, "failed": 0}
    generation = deployment(api_server, namespace)["metadata"]["generation"]

    texts(one="b+", two="c")
    eventually(lambda: mounted() == {"one.Regex": "b+"}, what="a change is followed")
    two = [grammar("one"), grammar("two"), grammar("three")]
    api_server.apply(model(namespace, guidedDecoding={"grammars": two}))
    eventually(lambda: mounted().get("two.Regex") == "c", what="a grammar is added")
    missing = await_condition(api_server, namespace, "GuidedDecoding", "False", "GrammarsPending")
    assert missing["message"] == "three: ConfigMap texts has no key three.txt"
    api_server.kubectl("delete", "configmap", "texts", "-n", namespace)
    ring()
    eventually(lambda: mounted()["three.Absent"] == "there is no ConfigMap texts", what="its loss is seen")
    assert mounted()["one.Regex"] == "b+", "pods keep what they have"
    api_server.apply(model(namespace, guidedDecoding={"grammars": []}))
    eventually(lambda: not mounted(), what="grammars are taken away")
    assert len(api_server.get("controllerrevisions", "-n", namespace)["items"]) == 1, "no new revision"
    assert deployment(api_server, namespace)["metadata"]["generation"] == generation, "no pod restarted"


def test_grammars_over_a_mebibyte_in_sum_are_a_condition(api_server: Cluster, namespace: str) -> None:
    text, grammars = "a" * 600_000, []
    for name in ("one", "two"):
        texts = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"t": text}}
        texts["metadata"] = {"name": name, "namespace": namespace}
        api_server.kubectl("create", "-f", "-", stdin=json.dumps(texts))
        reference = {"name": name, "key": "t"}
        grammars.append({"name": name, "kind": "Regex", "configMapKeyRef": reference})
    api_server.apply(model(namespace, guidedDecoding={"grammars": grammars}))
    full = await_condition(api_server, namespace, "GuidedDecoding", "False", "GrammarsPending")
    assert full["message"] == "two: too large: all grammars of a model together may have at most 1 MiB"
    data = api_server.get("configmap", "m-grammars", "-n", namespace)["data"]
    assert (data["one.Regex"], "two.Regex" in data) == (text, False)


def test_a_spent_restart_budget_shows_and_is_told_in_one_event(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    def told() -> list[Object]:
        found = api_server.get("events", "-n", namespace)["items"]
        return [each for each in found if each["involvedObject"]["kind"] == "GuidedModel"]

    def say(**changes: str) -> None:
        """The operator asks a ready pod's sidecar every few minutes, and whenever the pod changes."""
        kubelet.say(**changes)
        api_server.kubectl(
            "annotate", "pods", "--all", f"said={len(changes)}", "--overwrite", "-n", namespace
        )

    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "GuidedDecoding", "True", "Active")
    say(exhausted="grammar workers crashed too often")
    await_condition(api_server, namespace, "GuidedDecoding", "False", "ServiceExhausted")
    await_condition(api_server, namespace, "Ready", "True")
    (event,) = told()
    assert (event["type"], event["reason"]) == ("Warning", "ServiceExhausted")
    assert "grammar workers crashed too often" in event["message"]
    assert event["involvedObject"]["uid"] == api_server.get("gm", "m", "-n", namespace)["metadata"]["uid"]
    say()
    await_condition(api_server, namespace, "GuidedDecoding", "True", "Active")
    assert told() == [event]


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
def test_idle_operator_writes_nothing(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    await_condition(api_server, namespace, "GuidedDecoding", "True")
    await_condition(api_server, namespace, "Progressing", "False", "Complete")
    # Earlier tests' namespaces go in the background, and their deletions count as writes.
    eventually(
        lambda: "Terminating" not in api_server.kubectl("get", "namespaces"), timeout_s=90, what="quiet"
    )
    before = writes(api_server)
    # Ring every bell: the passes that follow must find nothing to write.
    api_server.kubectl("annotate", "gm/m", "bell=rung", "-n", namespace)
    time.sleep(8)  # not for luck: the time in which nothing may happen
    after = writes(api_server)
    changed = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
    assert changed == {("PATCH", "guidedmodels", ""): 1.0}, "our own annotation, and no write beside it"


def writes(cluster: Cluster) -> dict[tuple[str, str, str], float]:
    """Return how many writes of kinds that the operator writes the API server has seen, Leases aside."""
    ours = {"guidedmodels", *CHILDREN.split(",")}
    found: dict[tuple[str, str, str], float] = {}
    for line in cluster.kubectl("get", "--raw", "/metrics").splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels = dict(part.split("=", 1) for part in line[line.index("{") + 1 : line.rindex("}")].split(","))
        labels = {name: value.strip('"') for name, value in labels.items()}
        if labels["verb"] in ("POST", "PUT", "PATCH", "APPLY", "DELETE") and labels["resource"] in ours:
            key = (labels["verb"], labels["resource"], labels["subresource"])
            found[key] = found.get(key, 0.0) + float(line.rsplit(" ", 1)[1])
    return found


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


def test_rollout_is_ready_only_when_no_old_pod_is_left(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    wanted = model(namespace, replicas=2, rollout={"maxSurge": 1, "maxUnavailable": 0})
    api_server.apply(wanted)
    await_condition(api_server, namespace, "Ready", "True")
    wanted["spec"]["engine"]["env"] = [{"name": "APP_EXTRA", "value": "1"}]
    kubelet.unready_revision = pod_key(parse(wanted))
    api_server.apply(wanted)
    await_condition(api_server, namespace, "Ready", "False", "PodsNotReady")
    await_condition(api_server, namespace, "Progressing", "True", "RollingOut")
    seen = eventually(
        lambda: (
            found
            if (found := api_server.get("gm", "m", "-n", namespace)["status"])["replicas"] == 3
            else None
        ),
        what="one pod more than desired",
    )
    assert (seen["readyReplicas"], seen["updatedReplicas"]) == (2, 1), "the old ones serve on"
    assert conditions(api_server, namespace)["Available"]["status"] == "True"
    kubelet.unready_revision = ""
    await_condition(api_server, namespace, "Ready", "True")
    pods = items(api_server, namespace, "pods")
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    assert {pod["metadata"]["labels"][names.LABEL_REVISION] for pod in live} == {pod_key(parse(wanted))}


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


def test_incompatible_model_gets_a_message_and_no_pods(api_server: Cluster, namespace: str) -> None:
    wanted = model(namespace)
    wanted["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.9.1"
    api_server.apply(wanted)
    refused = await_condition(api_server, namespace, "Compatible", "False", "Invalid")
    assert "spec.engine.image" in refused["message"]
    assert "0.9.1" in refused["message"]
    await_condition(api_server, namespace, "Ready", "False", "Incompatible")
    assert items(api_server, namespace) == []


def test_foreign_object_of_the_same_name_is_never_touched(api_server: Cluster, namespace: str) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "m", "namespace": namespace},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "other"}},
    }
    api_server.apply(foreign)
    before = api_server.get("service", "m", "-n", namespace)
    api_server.apply(model(namespace))
    conflict = await_condition(api_server, namespace, "Ready", "False", "NameConflict")
    assert "Service m" in conflict["message"]
    assert api_server.get("service", "m", "-n", namespace) == before
    assert "Deployment" not in [each["kind"] for each in items(api_server, namespace)]


@pytest.mark.usefixtures("kubelet")
def test_delete_leaves_nothing(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    api_server.kubectl("delete", "gm/m", "-n", namespace)
    eventually(lambda: not items(api_server, namespace, f"{CHILDREN},pods,replicasets"), timeout_s=60)
