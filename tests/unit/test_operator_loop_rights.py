"""The operator's rights: nothing by wildcard, no secrets, nothing inside pods, one Lease."""

from typing import Any

import yaml

from guided_operator.kube import kinds
from support.operator_process import POLICY, RBAC

REVISIONS = {"configmaps", "controllerrevisions"}
MAY_BE_DELETED = REVISIONS | {kind.plural for kind in kinds.CHILDREN if kind.pruned}


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


def test_nothing_is_granted_by_wildcard_nor_inside_pods_nor_of_secrets() -> None:
    found = [rule for each in yaml.safe_load_all(RBAC.read_text()) for rule in each.get("rules", ())]
    assert len(found) > 8
    for rule in found:
        assert not any("*" in each for each in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]))
        assert not {"secrets", "pods/exec", "pods/proxy", "pods/attach", "pods/log"} & set(rule["resources"])
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_policy_is_about_every_kind_that_the_operator_writes() -> None:
    policy = next(yaml.safe_load_all(POLICY.read_text()))
    constraints = policy["spec"]["matchConstraints"]["resourceRules"]
    held = {
        (group, each) for rule in constraints for group in rule["apiGroups"] for each in rule["resources"]
    }
    objects = [each for each in yaml.safe_load_all(RBAC.read_text()) if each["kind"].endswith("Role")]
    written = {
        (group, resource)
        for each in objects
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"}
    }
    own = {("guidedmodel.io", f"guidedmodels/{part}") for part in ("status", "finalizers")}
    assert held == written - own
    assert policy["spec"]["failurePolicy"] == "Fail"


def test_cluster_wide_rights_are_those_of_the_resource_and_its_children() -> None:
    children = {kind.plural for kind in kinds.CHILDREN}
    models = {"guidedmodels", "guidedmodels/status", "guidedmodels/finalizers"}
    assert set(granted()) == children | models | {"events", "replicasets", "customresourcedefinitions"}
    assert granted()["events"] == {"create"}


def test_pods_are_looked_at_and_models_never_changed() -> None:
    assert granted()["pods"] == {"list", "watch"}
    assert granted()["replicasets"] == {"list"}
    assert granted()["guidedmodels"] == {"get", "list", "watch"}
    assert granted()["guidedmodels/status"] == {"patch"}


def test_nobodys_configmaps_are_listed() -> None:
    for kind in kinds.READ:
        assert not {"list", "watch"} & granted()[kind.plural] or kind is kinds.REVISION
    assert "watch" not in granted()["controllerrevisions"]
    assert granted()["customresourcedefinitions"] == {"list", "watch"}


def test_only_what_is_pruned_may_be_deleted() -> None:
    assert {resource for resource, verbs in granted().items() if "delete" in verbs} == MAY_BE_DELETED
    assert not any("deletecollection" in verbs for verbs in granted().values())
