"""Pods under OpenShift's restricted-v2: by the rules of that constraint, which no test cluster has.

The rules as OpenShift 4 ships them: openshift/cluster-kube-apiserver-operator,
bindata/bootkube/scc-manifests/0000_20_kube-apiserver-operator_00_scc-restricted-v2.yaml (Apache-2.0).
"""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings

from guided_operator.api import GuidedModel
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from support import drawn
from support.manifests import guided_model

Object = dict[str, Any]
# What OpenShift gave a namespace of ours: `openshift.io/sa.scc.uid-range: 1000650000/10000`.
UIDS = range(1000650000, 1000660000)
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}
HOST = ("hostNetwork", "hostPID", "hostIPC")


def admitted(spec: Object) -> Object:
    """Return the pod with the user and group that the constraint's admission fills in."""
    given = {"runAsUser": UIDS.start, "fsGroup": UIDS.start}
    return spec | {"securityContext": given | spec["securityContext"]}


def refusals(spec: Object) -> Iterator[str]:
    """Yield why restricted-v2 does not take a pod."""
    containers = [*spec["initContainers"], *spec["containers"]]
    contexts = [spec["securityContext"], *(each["securityContext"] for each in containers)]
    yield from (name for name in HOST if spec.get(name))
    yield from (f"hostPort of {each['name']}" for each in containers if _host_ports(each))
    for volume in spec["volumes"]:
        kinds = volume.keys() - {"name"}
        yield from (f"volume {kind}" for kind in kinds if kind not in VOLUMES | {"secret"})
    for context in contexts:
        user, group = context.get("runAsUser", UIDS.start), context.get("fsGroup", UIDS.start)
        if user not in UIDS:
            yield f"runAsUser {user}"
        if group not in UIDS:
            yield f"fsGroup {group}"
        if context.get("privileged") or context.get("seLinuxOptions"):
            yield "privileged or seLinuxOptions"
        if context.get("seccompProfile", {}).get("type", "RuntimeDefault") != "RuntimeDefault":
            yield "seccompProfile"
    for each in containers:
        context = each["securityContext"]
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"allowPrivilegeEscalation of {each['name']}"
        if "ALL" not in context["capabilities"].get("drop", ()) or context["capabilities"].get("add"):
            yield f"capabilities of {each['name']}"


def _host_ports(container: Object) -> list[Object]:
    return [port for port in container.get("ports", ()) if "hostPort" in port]


def pod(gm: GuidedModel, user_id: int | None) -> Object:
    template = pod_template(gm, Site("guidedmodel:1", user_id=user_id))
    spec: Object = template["spec"]
    return admitted(spec)


@settings(max_examples=40)
@given(drawn.MODELS)
def test_a_pod_whose_user_is_left_to_the_platform_is_taken(gm: GuidedModel) -> None:
    own = gm.spec.pod
    asked_for = own.run_as_user or own.fs_group  # a user's own wish, which the namespace may not grant
    found = list(refusals(pod(gm, None)))
    assert not found or (asked_for and all("runAsUser" in why or "fsGroup" in why for why in found))


def test_a_fixed_user_is_refused_there() -> None:
    assert list(refusals(pod(guided_model(), 10001))) == ["runAsUser 10001"]
    assert not list(refusals(pod(guided_model(), None)))
