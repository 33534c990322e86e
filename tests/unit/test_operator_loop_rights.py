"""The operator's rights: nothing by wildcard, no secrets, nothing inside pods, one Lease."""

from pathlib import Path
from typing import Any

import yaml

from guided_operator import kinds

RBAC = Path(__file__).resolve().parents[2] / "manifests/rbac/operator.yaml"
MAY_BE_DELETED = {"configmaps", "controllerrevisions"}


def rules(kind: str) -> list[dict[str, Any]]:
    objects = yaml.safe_load_all(RBAC.read_text())
    return [rule for each in objects if each["kind"] == kind for rule in each["rules"]]


def granted() -> dict[str, set[str]]:
    """Return the cluster-wide verbs by resource."""
    found: dict[str, set[str]] = {}
    for rule in rules("ClusterRole"):
        for resource in rule["resources"]:
            found.setdefault(resource, set()).update(rule["verbs"])
    return found


def test_nothing_is_granted_by_wildcard() -> None:
    assert "*" not in RBAC.read_text()


def test_cluster_wide_rights_are_those_of_the_resource_and_its_children() -> None:
    children = {kind.plural for kind in kinds.WATCHED}
    models = {"guidedmodels", "guidedmodels/status", "guidedmodels/finalizers"}
    assert set(granted()) == children | models | {"events"}
    assert granted()["events"] == {"create"}


def test_pods_are_looked_at_and_models_never_changed() -> None:
    assert granted()["pods"] == {"list", "watch"}
    assert granted()["guidedmodels"] == {"get", "list", "watch"}
    assert granted()["guidedmodels/status"] == {"patch"}


def test_only_what_is_pruned_may_be_deleted() -> None:
    assert {resource for resource, verbs in granted().items() if "delete" in verbs} == MAY_BE_DELETED
    assert not any("deletecollection" in verbs for verbs in granted().values())


def test_lease_is_granted_by_name_in_one_namespace() -> None:
    create, keep = rules("Role")
    assert (create["resources"], create["verbs"]) == (["leases"], ["create"])
    assert (keep["resources"], keep["resourceNames"]) == (["leases"], ["guidedmodel-operator"])
    assert set(keep["verbs"]) == {"get", "patch"}
