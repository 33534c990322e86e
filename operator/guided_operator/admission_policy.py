"""The ValidatingAdmissionPolicy that holds the operator's account to objects of GuidedModels.

RBAC knows kinds and not owners: the account may write every ConfigMap, and Deployments of any pods. With the
policy, whoever has its token can write what looks like a GuidedModel's and nothing else.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.kinds import Kind

Object = dict[str, Any]
_API_VERSION: Final = "admissionregistration.k8s.io/v1"
_EVENTS: Final = "events"
_LEASES: Final = "leases"
_WORKLOADS: Final = (kinds.DEPLOYMENT, kinds.WORKER_SET)
_SELECTING: Final = (kinds.DEPLOYMENT, kinds.DISRUPTION_BUDGET, kinds.POD_MONITOR)


def _all(*terms: str) -> str:
    return " && ".join(f"({term})" for term in terms)


def _unless(resources: Iterable[str], term: str) -> str:
    return f"request.resource.resource in {sorted(resources)} || ({term})"


def _only(resources: Iterable[str], term: str) -> str:
    return f"!(request.resource.resource in {sorted(resources)}) || ({term})"


def _false(field: str) -> str:
    return f"!has({field}) || !{field}"


def _unset(*fields: str) -> str:
    return _all(*(f"!has({field})" for field in fields))


def _confined(context: str) -> str:
    """Say that a security context takes no protection away that a pod has without it."""
    return _all(
        *(
            f"!has({context}.{profile}) || {context}.{profile}.type != 'Unconfined'"
            for profile in ("seccompProfile", "appArmorProfile")
        ),
        _unset(f"{context}.seLinuxOptions", f"{context}.windowsOptions"),
    )


def _labelled(labels: str) -> str:
    """Say that labels hold that of the model that the object belongs to."""
    return _all(
        f"has({labels}) && '{names.LABEL_NAME}' in {labels}",
        _owned("object", f"r.name == {labels}['{names.LABEL_NAME}']"),
    )


def _made(resources: Iterable[str], term: str) -> str:
    return f"request.operation == 'DELETE' || {_only(resources, term)}"


def _owned(item: str, term: str = "true") -> str:
    """Say that an object's controller is a GuidedModel for which the term holds."""
    references = f"{item}.metadata.ownerReferences"
    controller = _all(
        "has(r.controller) && r.controller",
        f"r.kind == '{names.KIND}'",
        f"r.apiVersion.startsWith('{names.API_GROUP}/')",
        term,
    )
    return f"has({references}) && {references}.exists(r, {controller})"


_LABELLED: Final = _all(
    f"has(object.metadata.labels) && '{names.LABEL_NAME}' in object.metadata.labels",
    _owned("object", f"r.name == object.metadata.labels['{names.LABEL_NAME}']"),
)
# Somebody may have taken the label away; it is put back.
_STILL_OWNED: Final = _owned("object", "oldObject.metadata.ownerReferences.exists(o, o.uid == r.uid)")
_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"  # of Kubernetes before 1.30
_VOLUMES: Final = (
    "has(v.emptyDir) || has(v.configMap) || has(v.secret) || has(v.persistentVolumeClaim) || "
    "(has(v.projected) && v.projected.sources.all(s, has(s.secret)))"
)
_CONTAINER: Final = _all(
    "has(c.securityContext)",
    "has(c.securityContext.allowPrivilegeEscalation) && !c.securityContext.allowPrivilegeEscalation",
    _false("c.securityContext.privileged"),
    "!has(c.securityContext.capabilities) || !has(c.securityContext.capabilities.add)",
    "!has(c.securityContext.runAsNonRoot) || c.securityContext.runAsNonRoot",
    "!has(c.securityContext.runAsUser) || c.securityContext.runAsUser != 0",
    "!has(c.securityContext.procMount) || c.securityContext.procMount == 'Default'",
    _confined("c.securityContext"),
    "!has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == 0)",
)
_POD: Final = _all(
    "has(variables.pod.securityContext)",
    "has(variables.pod.securityContext.runAsNonRoot) && variables.pod.securityContext.runAsNonRoot",
    "!has(variables.pod.securityContext.runAsUser) || variables.pod.securityContext.runAsUser != 0",
    "has(variables.pod.securityContext.seccompProfile)",
    _confined("variables.pod.securityContext"),
    _unset("variables.pod.securityContext.sysctls", "variables.pod.nodeName"),
    "!has(variables.template.metadata.annotations) || "
    f"!variables.template.metadata.annotations.exists(k, k.startsWith('{_APPARMOR}'))",
    _labelled("variables.template.metadata.labels"),
    "has(variables.pod.automountServiceAccountToken) && !variables.pod.automountServiceAccountToken",
    *(_false(f"variables.pod.{field}") for field in ("hostNetwork", "hostPID", "hostIPC")),
    f"!has(variables.pod.volumes) || variables.pod.volumes.all(v, {_VOLUMES})",
    f"variables.pod.containers.all(c, {_CONTAINER})",
    f"!has(variables.pod.initContainers) || variables.pod.initContainers.all(c, {_CONTAINER})",
)
# What must hold of each write, and what is said where it does not.
_VALIDATIONS: Final = {
    _unless(
        (_EVENTS, _LEASES),
        _all(
            f"request.operation != 'CREATE' || {_LABELLED}",
            f"request.operation == 'CREATE' || ({_owned('oldObject')})",
            f"request.operation != 'UPDATE' || ({_STILL_OWNED})",
        ),
    ): (
        f"makes only objects whose controller is the {names.KIND} that their label {names.LABEL_NAME} names, "
        f"and changes only what belongs to a {names.KIND}"
    ),
    _unless(
        (_LEASES,), "!request.namespace.startsWith('kube-')"
    ): "writes nothing in namespaces of Kubernetes itself (kube-*)",
    _only(
        (_EVENTS,),
        f"(object.involvedObject.kind == '{names.KIND}' && "
        f"object.involvedObject.apiVersion.startsWith('{names.API_GROUP}/')) || "
        "(object.involvedObject.kind == 'Lease' && object.involvedObject.name == '{account}')",
    ): f"writes events about {names.KIND}s and its own Lease alone",
    _only((kind.plural for kind in _WORKLOADS), _POD): (
        "makes only pods without a token of the Kubernetes API, without namespaces or ports of the host, "
        "with volumes of their namespace, of a user that is not root, confined, placed by a scheduler, with "
        f"containers that gain no privileges, and with the label of their {names.KIND}"
    ),
    _made(
        (kinds.SERVICE.plural,),
        _all(
            _labelled("object.spec.selector"),
            "!has(object.spec.type) || object.spec.type == 'ClusterIP'",
            "!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0",
        ),
    ): f"makes only Services of type ClusterIP, without externalIPs, of the pods of their {names.KIND}",
    _made((kinds.NETWORK_POLICY.plural,), _labelled("object.spec.podSelector.matchLabels")): (
        f"makes only NetworkPolicies of the pods of their {names.KIND}"
    ),
    _made((kind.plural for kind in _SELECTING), _labelled("object.spec.selector.matchLabels")): (
        f"makes only what selects the pods of its {names.KIND}"
    ),
    _made((kinds.POD_MONITOR.plural,), _unset("object.spec.namespaceSelector")): (
        "makes only PodMonitors of their own namespace"
    ),
    _made(
        (kinds.AUTOSCALER.plural, kinds.SCALED_OBJECT.plural),
        _owned(
            "object",
            _all(
                f"object.spec.scaleTargetRef.kind == '{names.KIND}'",
                f"object.spec.scaleTargetRef.apiVersion.startsWith('{names.API_GROUP}/')",
                "object.spec.scaleTargetRef.name == r.name",
            ),
        ),
    ): f"makes only autoscalers of the {names.KIND} that they belong to",
    _only(
        (kinds.WORKER_SET.plural,), "!has(object.spec.leaderWorkerTemplate.leaderTemplate)"
    ): "makes groups of pods from one template",
    # A create cannot be limited to a name by RBAC.
    _only((_LEASES,), "has(object.metadata.name) && object.metadata.name == '{account}'"): (
        "has one Lease, called as itself"
    ),
}
_TEMPLATE: Final = (
    f"request.resource.resource == '{kinds.WORKER_SET.plural}' ? "
    "object.spec.leaderWorkerTemplate.workerTemplate : object.spec.template"
)


def manifests(account: str, namespace: str) -> Iterator[Object]:
    """Yield the policy and its binding, for the account of an operator in `namespace`."""
    name = f"{account}.{namespace}"  # an operator in another namespace has its own
    user = f"system:serviceaccount:{namespace}:{account}"
    yield {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": list(_rules())},
            "matchConditions": [{"name": "account", "expression": f"request.userInfo.username == '{user}'"}],
            "variables": [
                {"name": "template", "expression": _TEMPLATE},
                {"name": "pod", "expression": "variables.template.spec"},
            ],
            "validations": [
                {
                    "expression": cel.replace("{account}", account),
                    "message": f"the operator's account {said}",
                }
                for cel, said in _VALIDATIONS.items()
            ],
        },
    }
    yield {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


def _rules() -> Iterator[Object]:
    """Yield a rule for each API group that the operator writes in."""
    written = [(_group(kind), kind.plural) for kind in kinds.WATCHED if kind is not kinds.POD]
    written += [("", _EVENTS), ("coordination.k8s.io", _LEASES)]
    for group, alike in itertools.groupby(sorted(written), key=lambda each: each[0]):
        yield {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": [plural for _, plural in alike],
        }


def _group(kind: Kind) -> str:
    return kind.api_version.rpartition("/")[0]
