"""Names, labels and owner of a GuidedModel's children."""

from kubernetes.aio import client as k8s

from guided_contract import names
from guided_operator.api import API_VERSION, GuidedModel


def selector(gm: GuidedModel) -> dict[str, str]:
    """Return the labels that tell this model's pods from all others; they never change."""
    return {names.LABEL_NAME: gm.name}


def leader_selector(gm: GuidedModel) -> dict[str, str]:
    """Return the labels of the pods that serve the API: one of each replica, over several nodes the first."""
    leader = {names.LABEL_NODE: "0"} if gm.spec.parallelism.nodes > 1 else {}
    return {**selector(gm), **leader}


def labels(gm: GuidedModel) -> dict[str, str]:
    """Return the labels of every child."""
    return {
        **selector(gm),
        "app.kubernetes.io/name": "guidedmodel",
        "app.kubernetes.io/instance": gm.name,
        "app.kubernetes.io/managed-by": "guidedmodel-operator",
    }


def metadata(gm: GuidedModel, name: str = "") -> k8s.V1ObjectMeta:
    """Return the metadata of a child: named as the model by default, and owned by it once it exists."""
    owners = None
    if gm.metadata.uid:
        owner = k8s.V1OwnerReference(
            api_version=API_VERSION,
            kind=gm.kind,
            name=gm.name,
            uid=gm.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )
        owners = [owner]
    return k8s.V1ObjectMeta(
        name=name or gm.name, namespace=gm.namespace, labels=labels(gm), owner_references=owners
    )
