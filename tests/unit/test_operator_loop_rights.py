"""The operator's rights: nothing by wildcard, no secrets, nothing inside pods, one Lease."""

import yaml

from guided_operator.kube import kinds
from support.operator_process import POLICY, RBAC

LOOK = {"get", "list", "watch"}
OURS = {("guidedmodel.io", f"guidedmodels/{part}") for part in ("status", "finalizers")}


def granted(kind: str) -> dict[tuple[str, str], set[str]]:
    """Return the verbs of a role by group and resource."""
    found: dict[tuple[str, str], set[str]] = {}
    for each in yaml.safe_load_all(RBAC.read_text()):
        for rule in each["rules"] if each["kind"] == kind else ():
            for resource in rule["resources"]:
                [group] = rule["apiGroups"]
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_rights_are_those_of_the_resource_and_its_children_and_no_others() -> None:
    verbs = {resource: verbs for (_, resource), verbs in granted("ClusterRole").items()}
    for kind in kinds.CHILDREN:
        given = verbs.pop(kind.plural)
        if kind.plural == "pods":
            assert given == {"list", "watch"}
            continue
        assert given - LOOK - {"delete"} == {"create", "patch"}, kind
        # Nobody's ConfigMaps are listed, no other's revisions watched, and only what is pruned is deleted.
        assert not (kind in kinds.READ and given & {"list", "watch"})
        assert kind is not kinds.REVISION or "watch" not in given
        assert ("delete" in given) == (kind.pruned or kind in (kinds.CONFIG_MAP, kinds.REVISION)), kind
    assert verbs == {
        "guidedmodels": LOOK,
        "guidedmodels/status": {"patch"},
        "guidedmodels/finalizers": {"update"},
        "replicasets": {"list"},
        "events": {"create"},
        "customresourcedefinitions": {"list", "watch"},
    }
    assert granted("Role") == {("coordination.k8s.io", "leases"): {"create", "get", "patch"}}


def test_policy_is_about_every_kind_that_the_operator_writes() -> None:
    policy = next(yaml.safe_load_all(POLICY.read_text()))
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    held = {(group, each) for rule in rules for group in rule["apiGroups"] for each in rule["resources"]}
    roles = granted("ClusterRole") | granted("Role")
    assert held == {what for what, verbs in roles.items() if verbs - LOOK} - OURS
    assert policy["spec"]["failurePolicy"] == "Fail"
