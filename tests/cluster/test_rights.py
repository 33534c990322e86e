"""Who may do what, as the API server says: the operator's account under its policy, and view, edit, admin."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from devtools import golang

from guided_contract import names
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.workload import workload
from support.audit import OPERATOR
from support.cluster import Cluster, KubectlError
from support.manifests import children_of, guided_model, minimal
from support.operator_process import ACCOUNT, NAMESPACE, USERS, install
from support.waiting import eventually

pytestmark = pytest.mark.cluster
HERE = "rights"
Object = dict[str, Any]
OWNER = {
    "apiVersion": "guidedmodel.io/v1alpha1",
    "kind": "GuidedModel",
    "name": "tiny",
    "uid": "00000000-0000-0000-0000-000000000001",
    "controller": True,
    "blockOwnerDeletion": True,
}
LABELS = {names.LABEL_NAME: "tiny"}


@pytest.fixture(scope="module")
def server(api_server: Cluster) -> Iterator[Cluster]:
    install(api_server)
    api_server.apply(USERS)
    with api_server.namespace(HERE):
        # The API server takes a moment to follow a new policy.
        eventually(
            lambda: "controller is the GuidedModel" in refusal(api_server, config_map()),
            what="the policy holds",
        )
        yield api_server


def config_map(namespace: str = HERE, **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "tiny", "namespace": namespace, **metadata},
    }


def deployment(namespace: str = HERE) -> Object:
    gm = guided_model(engine__accelerator={"type": "None"})
    made = workload(gm, pod_template(gm, Site("guidedmodel:1")), 0)
    made["metadata"] |= {"namespace": namespace, "labels": LABELS, "ownerReferences": [OWNER]}
    return made


def refusal(cluster: Cluster, wanted: Object, user: str = OPERATOR, *verb: str) -> str:
    """Return why the API server refuses what a user creates, "" if it would not; nothing is stored."""
    try:
        cluster.kubectl(
            *(verb or ("create",)), "--dry-run=server", f"--as={user}", "-f", "-", stdin=json.dumps(wanted)
        )
    except KubectlError as error:
        return str(error)
    return ""


def event(kind: str, version: str) -> Object:
    about = {"apiVersion": version, "kind": kind, "name": "tiny", "namespace": HERE}
    return {**config_map(), "kind": "Event", "involvedObject": about, "reason": "A", "type": "Warning"}


def lease(name: str) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


OWNED: Object = {"labels": LABELS, "ownerReferences": [OWNER]}
WRITTEN = (
    (config_map(**OWNED), ""),
    (deployment(), ""),
    (config_map("kube-public", **OWNED), "writes nothing in namespaces of Kubernetes itself"),
    (deployment("kube-system"), "writes nothing in namespaces of Kubernetes itself"),
    (event("GuidedModel", "guidedmodel.io/v1alpha1"), ""),
    (event("Pod", "v1"), "writes events about GuidedModels alone"),
    (lease("another"), "has one Lease"),
)


def test_operator_may_write_what_is_a_models_and_its_lease(server: Cluster) -> None:
    for wanted, why in WRITTEN:
        found = refusal(server, wanted)
        assert why in found
        assert bool(found) == bool(why)
    assert "has one Lease" not in refusal(server, lease(ACCOUNT)), "it exists"


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": LABELS},
        {"ownerReferences": [OWNER]},
        {"labels": {names.LABEL_NAME: "other"}, "ownerReferences": [OWNER]},
        {"labels": LABELS, "ownerReferences": [OWNER | {"controller": False}]},
        {"labels": LABELS, "ownerReferences": [OWNER | {"kind": "Deployment", "apiVersion": "apps/v1"}]},
        {"labels": LABELS, "ownerReferences": [OWNER | {"apiVersion": "evil.io/v1"}]},
    ],
)
def test_operator_may_write_nothing_that_is_not(server: Cluster, metadata: Object) -> None:
    found = refusal(server, config_map(**metadata))
    assert "makes only objects whose controller is the GuidedModel that their label" in found


def test_operator_may_neither_take_over_nor_delete_what_is_anothers(server: Cluster) -> None:
    """The owner exists, for the garbage collector deletes what belongs to nobody."""
    gm = minimal()
    gm["metadata"]["namespace"] = HERE
    server.apply(gm)
    owner = OWNER | {"uid": server.get("gm", "tiny", "-n", HERE)["metadata"]["uid"]}
    theirs, ours = config_map(), config_map(labels=LABELS, ownerReferences=[owner])
    server.apply(theirs)
    try:
        assert "changes only what belongs to a GuidedModel" in refusal(
            server, ours, OPERATOR, "apply", "--server-side", "--force-conflicts"
        )
        as_operator = ("-n", HERE, f"--as={OPERATOR}", "--dry-run=server")
        with pytest.raises(KubectlError, match="changes only what belongs"):
            server.kubectl("delete", "configmap/tiny", *as_operator)
        given = json.dumps({"metadata": ours["metadata"]})
        server.kubectl("patch", "configmap/tiny", "-n", HERE, "--type=merge", "-p", given)
        # Its label may be gone: it is put back, and what is written before that is written, too.
        server.kubectl("label", "configmap/tiny", "-n", HERE, f"{names.LABEL_NAME}-")
        server.kubectl("annotate", "configmap/tiny", "a=b", *as_operator)
        assert refusal(server, ours, OPERATOR, "apply", "--server-side", "--force-conflicts") == ""
        server.kubectl("delete", "configmap/tiny", *as_operator)
        for owners in ([], [OWNER]):
            given = json.dumps({"metadata": {"ownerReferences": owners}})
            with pytest.raises(KubectlError, match="changes only what belongs"):
                server.kubectl("patch", "configmap/tiny", "--type=merge", "-p", given, *as_operator)
    finally:
        server.kubectl("delete", "configmap/tiny", "gm/tiny", "-n", HERE, "--ignore-not-found")


PODS: dict[str, Any] = {
    "a token": lambda pod: pod.pop("automountServiceAccountToken"),
    "a token again": lambda pod: pod.update(automountServiceAccountToken=True),
    "a token of one's own": lambda pod: pod["volumes"].append(
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    ),
    "the node's files": lambda pod: pod["volumes"].append({"name": "h", "hostPath": {"path": "/"}}),
    "the node's network": lambda pod: pod.update(hostNetwork=True),
    "the node's processes": lambda pod: pod.update(hostPID=True),
    "privileges": lambda pod: pod["containers"][0].update(securityContext={"privileged": True}),
    "a container as it likes": lambda pod: pod["containers"].append({"name": "x", "image": "x"}),
    "an early container as it likes": lambda pod: pod["initContainers"].append({"name": "x", "image": "x"}),
    "root": lambda pod: pod["securityContext"].update(runAsUser=0, runAsNonRoot=False),
    "any user": lambda pod: pod["securityContext"].pop("runAsNonRoot"),
    "root in a container": lambda pod: context(pod).update(runAsUser=0, runAsNonRoot=False),
    "any user in a container": lambda pod: context(pod).update(runAsNonRoot=False),
    "any system call by default": lambda pod: pod["securityContext"].pop("seccompProfile"),
    "any system call": lambda pod: pod["securityContext"].update(seccompProfile={"type": "Unconfined"}),
    "any system call in a container": lambda pod: context(pod).update(seccompProfile={"type": "Unconfined"}),
    "no AppArmor": lambda pod: pod["securityContext"].update(appArmorProfile={"type": "Unconfined"}),
    "no AppArmor in a container": lambda pod: context(pod).update(appArmorProfile={"type": "Unconfined"}),
    "another type of SELinux": lambda pod: pod["securityContext"].update(seLinuxOptions={"type": "spc_t"}),
    "another type in a container": lambda pod: context(pod).update(seLinuxOptions={"type": "spc_t"}),
    "all of /proc": lambda pod: pod.update(hostUsers=False) or context(pod).update(procMount="Unmasked"),
    "settings of the kernel": lambda pod: pod["securityContext"].update(
        sysctls=[{"name": "kernel.shm_rmid_forced", "value": "0"}]
    ),
    "a port of the node": lambda pod: pod["containers"][0]["ports"][0].update(hostPort=8000),
    "a node of one's choice": lambda pod: pod.update(nodeName="n"),
}
if golang.kubernetes_version() == golang.OLDEST_KUBERNETES:
    del PODS["all of /proc"]  # it drops procMount, an alpha field there


def context(pod: Object) -> Object:
    """Return the security context of the engine."""
    found: Object = pod["containers"][0]["securityContext"]
    return found


@pytest.mark.parametrize("what", PODS)
def test_operator_may_not_make_pods_that_reach_further(server: Cluster, what: str) -> None:
    wanted = copy.deepcopy(deployment())
    PODS[what](wanted["spec"]["template"]["spec"])
    assert "makes only pods without a token of the Kubernetes API" in refusal(server, wanted)


def test_operator_may_not_make_pods_that_pass_for_others(server: Cluster) -> None:
    for label in (names.LABEL_NAME, "other"):
        wanted = deployment()
        wanted["spec"]["template"]["metadata"]["labels"] = {label: "other"}
        wanted["spec"]["selector"]["matchLabels"] = {label: "other"}
        assert "with the label of their GuidedModel" in refusal(server, wanted)
    wanted = deployment()
    annotations = wanted["spec"]["template"]["metadata"]["annotations"]
    annotations["container.apparmor.security.beta.kubernetes.io/engine"] = "unconfined"
    assert "makes only pods without a token" in refusal(server, wanted)


def around() -> dict[str, Object]:
    """Return what stands around a model's pods, by kind."""
    asked = {"networkPolicy": {"allowFrom": [{"podLabels": {"a": "b"}}]}}
    made = children_of(guided_model(engine__accelerator={"type": "None"}, **asked), Site("guidedmodel:1"))
    for each in made:
        each["metadata"] |= {"namespace": HERE, "ownerReferences": [OWNER]}
    return {each["kind"]: each for each in made}


EVERYTHING: Object = {"matchLabels": {}}
AROUND: dict[str, tuple[str, Any]] = {
    "a Service of all pods": ("Service", lambda spec: spec.update(selector={"a": "b"})),
    "a Service of none": ("Service", lambda spec: spec.pop("selector")),
    "an address of somebody's": ("Service", lambda spec: spec.update(externalIPs=["192.0.2.1"])),
    "an address for the world": ("Service", lambda spec: spec.update(type="LoadBalancer")),
    "a port of all nodes": ("Service", lambda spec: spec.update(type="NodePort")),
    "a name of somebody's": ("Service", lambda spec: spec.update(type="ExternalName", externalName="a.b")),
    "a NetworkPolicy of all pods": ("NetworkPolicy", lambda spec: spec.update(podSelector=EVERYTHING)),
    "a budget of all pods": ("PodDisruptionBudget", lambda spec: spec.update(selector=EVERYTHING)),
    "a budget of another's": (
        "PodDisruptionBudget",
        lambda spec: spec.update(selector={"matchLabels": {names.LABEL_NAME: "other"}}),
    ),
}


def test_operator_may_write_what_stands_around_a_models_pods(server: Cluster) -> None:
    made = around()
    assert {kind for kind, _ in AROUND.values()} < made.keys()
    assert {kind: refusal(server, each) for kind, each in made.items()} == dict.fromkeys(made, "")


@pytest.mark.parametrize("what", AROUND)
def test_operator_may_write_nothing_around_others_pods(server: Cluster, what: str) -> None:
    kind, change = AROUND[what]
    wanted = around()[kind]
    change(wanted["spec"])
    assert "the operator's account makes only" in refusal(server, wanted)


def test_policy_is_for_the_operators_account_alone(server: Cluster) -> None:
    for namespace in (HERE, "kube-system"):
        server.kubectl("create", "configmap", "anybodys", "-n", namespace, "--dry-run=server")


@pytest.fixture(scope="module")
def users(server: Cluster) -> dict[str, str]:
    """Return a user in the namespace for each of Kubernetes' roles."""
    made = {role: f"{role}-of-{HERE}" for role in ("view", "edit", "admin")}
    for role, user in made.items():
        server.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={user}", "-n", HERE)
    # The controller that adds roles to others takes a moment.
    eventually(lambda: may(server, made["view"], "get", "guidedmodels"), what="roles are aggregated")
    eventually(lambda: may(server, made["admin"], "delete", "guidedmodels"), what="roles are aggregated")
    return made


def may(cluster: Cluster, user: str, verb: str, resource: str, namespace: str = HERE) -> bool:
    resource, _, subresource = resource.partition("/")
    part = [f"--subresource={subresource}"] if subresource else []
    try:
        cluster.kubectl("auth", "can-i", verb, resource, *part, "-n", namespace, f"--as={user}")
    except KubectlError:
        return False
    return True


def test_edit_and_admin_may_have_models_and_view_may_look(server: Cluster, users: dict[str, str]) -> None:
    wanted = minimal() | {"metadata": {"name": "tiny", "namespace": HERE}}
    assert {role for role, user in users.items() if refusal(server, wanted, user) == ""} == {"edit", "admin"}
    for verbs, resource, roles in (
        (("create", "update", "patch", "delete"), "guidedmodels.guidedmodel.io", {"edit", "admin"}),
        (("get", "list", "watch"), "guidedmodels.guidedmodel.io", {"view", "edit", "admin"}),
        (("patch",), "guidedmodels.guidedmodel.io/scale", {"edit", "admin"}),
        (("patch",), "guidedmodels.guidedmodel.io/status", set[str]()),  # the operator's to write
    ):
        for verb in verbs:
            assert {role for role, user in users.items() if may(server, user, verb, resource)} == roles, verb
    assert not any(may(server, user, "get", "guidedmodels", "default") for user in users.values())
