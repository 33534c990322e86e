"""`python -m guided_operator.rbac` writes the operator's rights, made from its kinds; --check compares.

For the whole cluster, and, as an example, for two namespaces; the policy that holds the operator to its own
objects; and what view, edit and admin may do with GuidedModels. The chart renders the same rules.
"""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from guided_contract import names
from guided_operator import admission_policy
from guided_operator.kube import kinds
from guided_operator.kube.kinds import Kind

NAME: Final = "guidedmodel-operator"
NAMESPACE: Final = "guidedmodel-system"
FILES: Final = {
    Path("manifests/rbac/operator.yaml"): (),
    Path("manifests/rbac/operator-namespaces.yaml"): ("team-a", "team-b"),
}
POLICY_FILE: Final = Path("manifests/rbac/admission-policy.yaml")
USERS_FILE: Final = Path("manifests/rbac/users.yaml")
_HEADER: Final = """\
# Made by `python -m guided_operator.rbac`; do not edit. What the operator may do {where},
# and nothing more: tests run it with exactly these rights. The chart carries the same rules.
"""
_POLICY_HEADER: Final = """\
# Made by `python -m guided_operator.rbac`; do not edit. Holds the operator's account to objects of
# GuidedModels, which RBAC cannot: tests run the operator with it. The chart carries the same policy.
"""
_USERS_HEADER: Final = """\
# Made by `python -m guided_operator.rbac`; do not edit. Who has view, edit or admin in a namespace may do the
# same with its GuidedModels. The chart carries the same roles.
"""
_READ: Final = ("get", "list", "watch")
_CHANGE: Final = ("create", "update", "patch", "delete", "deletecollection")
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """What may be done to resources of one API group; no wildcards, ever."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]

    def manifest(self) -> Object:
        """Return the rule as RBAC has it."""
        return {"apiGroups": [self.group], "resources": [*self.resources], "verbs": [*self.verbs]}


def rules() -> Iterator[Rule]:
    """Yield the rules for the namespaces that are served."""
    # The resource itself: read it, and write its status. No finalizer, no annotation.
    yield Rule(names.API_GROUP, (names.PLURAL,), _READ)
    yield Rule(names.API_GROUP, (f"{names.PLURAL}/status",), ("patch",))
    # Only where the API server enforces it (OpenShift): lets an owner reference block its deletion.
    yield Rule(names.API_GROUP, (f"{names.PLURAL}/finalizers",), ("update",))
    yield from _merged(kinds.WATCHED)
    # What a Deployment's controller has come to, where a rollout turns in its middle.
    yield Rule("apps", (kinds.REPLICA_SETS,), ("list",))
    # What costs requests is told in an event, once.
    yield Rule("", ("events",), ("create",))


def own_rules() -> Iterator[Object]:
    """Yield the rules in the operator's own namespace: the Lease, which says who acts, and its events."""
    group = "coordination.k8s.io"
    yield Rule(group, ("leases",), ("create",)).manifest()  # a create cannot be limited to a name
    yield {**Rule(group, ("leases",), ("get", "patch")).manifest(), "resourceNames": [NAME]}
    yield Rule("", ("events",), ("create",)).manifest()


def _merged(watched: Iterable[Kind]) -> Iterator[Rule]:
    """Yield a rule for each group and set of verbs. Most are deleted by the garbage collector alone."""

    def of(kind: Kind) -> tuple[str, tuple[str, ...]]:
        if kind is kinds.POD:  # only looked at
            return _group(kind), ("list", "watch")
        pruned = kind.pruned or kind in (kinds.REVISION, kinds.CONFIG_MAP)  # old ones
        return _group(kind), (*_READ, "create", "patch", *(("delete",) if pruned else ()))

    for (group, verbs), alike in itertools.groupby(sorted(watched, key=of), key=of):
        yield Rule(group, tuple(sorted(kind.plural for kind in alike)), verbs)


def _group(kind: Kind) -> str:
    return kind.api_version.rpartition("/")[0]


def manifests(namespace: str, served: Sequence[str] = ()) -> Iterator[Object]:
    """Yield the RBAC objects for an operator in `namespace`; `served`: its namespaces, () for the cluster."""
    yield _object("ServiceAccount", NAME, namespace, api_version="v1")
    granted = [rule.manifest() for rule in rules()]
    if not served:
        yield _object("ClusterRole", NAME, rules=granted)
        yield _binding("ClusterRole", NAME, namespace)
    for where in served:
        # Another name than the Lease's, for the operator may serve its own namespace too.
        yield _object("Role", f"{NAME}-models", where, rules=granted)
        yield _binding("Role", f"{NAME}-models", namespace, where)
    yield _object("Role", NAME, namespace, rules=list(own_rules()))
    yield _binding("Role", NAME, namespace, namespace)


def user_roles() -> Iterator[Object]:
    """Yield the ClusterRoles that Kubernetes adds to its own: view, edit and admin."""
    granted = {
        "view": [
            Rule(names.API_GROUP, (names.PLURAL,), _READ),
            Rule(names.API_GROUP, (f"{names.PLURAL}/status", f"{names.PLURAL}/scale"), ("get",)),
        ],
        "edit": [
            Rule(names.API_GROUP, (names.PLURAL,), (*_READ, *_CHANGE)),
            Rule(names.API_GROUP, (f"{names.PLURAL}/scale",), ("get", "update", "patch")),
        ],
    }
    added_to = {"view": ("view", "edit", "admin"), "edit": ("edit", "admin")}
    for role, permitted in granted.items():
        labels = {f"rbac.authorization.k8s.io/aggregate-to-{other}": "true" for other in added_to[role]}
        made = _object("ClusterRole", f"guidedmodel-{role}", rules=[rule.manifest() for rule in permitted])
        yield {**made, "metadata": {**made["metadata"], "labels": labels}}


def _binding(kind: str, role: str, account_namespace: str, namespace: str = "") -> Object:
    return _object(
        f"{kind}Binding",
        role,
        namespace,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": account_namespace}],
    )


def _object(
    kind: str,
    name: str,
    namespace: str = "",
    *,
    api_version: str = "rbac.authorization.k8s.io/v1",
    **fields: Any,
) -> Object:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


class _Dumper(yaml.SafeDumper):
    """Writes what several objects share in each of them, without anchors."""

    def ignore_aliases(self, _: Any) -> bool:
        """Say that nothing is an alias."""
        return True


def text(served: Sequence[str]) -> str:
    """Return a file of the operator's rights."""
    where = f"in {' and '.join(served)}" if served else "in the whole cluster"
    return _HEADER.format(where=where) + _yaml(manifests(NAMESPACE, served))


def texts() -> dict[Path, str]:
    """Return every file."""
    return {
        **{file: text(served) for file, served in FILES.items()},
        POLICY_FILE: _POLICY_HEADER + _yaml(admission_policy.manifests(NAME, NAMESPACE)),
        USERS_FILE: _USERS_HEADER + _yaml(user_roles()),
    }


def _yaml(objects: Iterable[Object]) -> str:
    made: str = yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110)
    return made


def main(arguments: list[str]) -> int:
    """Write the files below the working directory, or with --check say whether they are up to date.

    Returns the exit status: 1 if --check finds a difference.
    """
    outdated = {
        file: wanted for file, wanted in texts().items() if not file.exists() or file.read_text() != wanted
    }
    if arguments == ["--check"]:
        for file in outdated:
            sys.stderr.write(f"{file} is out of date; run python -m guided_operator.rbac\n")
        return 1 if outdated else 0
    for file, wanted in outdated.items():
        file.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
