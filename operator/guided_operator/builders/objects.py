"""What the children of a GuidedModel have in common: names, labels, owner, and fields that are left out."""

from typing import Any

from guided_contract import names
from guided_operator.api import API_VERSION, GuidedModel

Object = dict[str, Any]  # as the API server takes it


def selector(gm: GuidedModel) -> dict[str, str]:
    """Return the labels that tell this model's pods from all others; they never change."""
    return {names.LABEL_NAME: gm.name}


def leader_selector(gm: GuidedModel) -> dict[str, str]:
    """Return the labels of the pods that serve the API: one of each replica, over several nodes the first."""
    leader = {names.LABEL_NODE: "0"} if is_grouped(gm) else {}
    return {**selector(gm), **leader}


def is_grouped(gm: GuidedModel) -> bool:
    """Say whether a replica is a group of pods."""
    return gm.spec.parallelism.nodes > 1


def labels(gm: GuidedModel) -> dict[str, str]:
    """Return the labels of every child."""
    return {
        **selector(gm),
        "app.kubernetes.io/name": "guidedmodel",
        "app.kubernetes.io/instance": gm.name,
        "app.kubernetes.io/managed-by": "guidedmodel-operator",
    }


def metadata(gm: GuidedModel, name: str = "") -> Object:
    """Return the metadata of a child: named as the model by default, and owned by it once it exists."""
    owner = {
        "apiVersion": API_VERSION,
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": gm.kind,
        "name": gm.name,
        "uid": gm.metadata.uid,
    }
    owned = {"ownerReferences": [owner]} if gm.metadata.uid else {}
    return {"labels": labels(gm), "name": name or gm.name, "namespace": gm.namespace, **owned}


def given(**fields: Any) -> Object:
    """Return the fields that are set: not None."""
    return {name: value for name, value in fields.items() if value is not None}
