"""Pods under OpenShift's restricted-v2: by the rules of that constraint, which no test cluster has.

The rules as OpenShift 4 ships them: openshift/cluster-kube-apiserver-operator,
bindata/bootkube/scc-manifests/0000_20_kube-apiserver-operator_00_scc-restricted-v2.yaml (Apache-2.0).
"""

from collections.abc import Iterator

from hypothesis import given, settings

from guided_operator.api import GuidedModel
from guided_operator.builders.pod_paths import Site
from support import drawn
from support.manifests import guided_model, pod_of

# What OpenShift gave a namespace of ours: `openshift.io/sa.scc.uid-range: 1000650000/10000`.
UIDS = range(1000650000, 1000660000)
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}


def refusals(gm: GuidedModel, user_id: int | None) -> Iterator[str]:
    """Yield why restricted-v2 does not take a pod, but for what test_drawn.py asks the API server."""
    spec = pod_of(gm, Site("guidedmodel:1", user_id=user_id))
    containers = [*spec["initContainers"], *spec["containers"]]
    for each in containers:
        yield from (f"hostPort of {each['name']}" for port in each.get("ports", ()) if "hostPort" in port)
    for volume in spec["volumes"]:
        yield from (f"volume {kind}" for kind in volume.keys() - {"name", "secret"} - VOLUMES)
    for context in (spec["securityContext"], *(each["securityContext"] for each in containers)):
        for part in ("runAsUser", "fsGroup"):
            if context.get(part, UIDS.start) not in UIDS:
                yield f"{part} {context[part]}"


@settings(max_examples=40)
@given(drawn.MODELS)
def test_a_pod_whose_user_is_left_to_the_platform_is_taken(gm: GuidedModel) -> None:
    own = gm.spec.pod
    asked_for = own.run_as_user or own.fs_group  # a user's own wish, which the namespace may not grant
    found = list(refusals(gm, None))
    assert not found or (asked_for and all("runAsUser" in why or "fsGroup" in why for why in found))


def test_a_fixed_user_is_refused_there() -> None:
    assert list(refusals(guided_model(), 10001)) == ["runAsUser 10001"]
