"""Who may connect to the pods."""

from typing import Any, Final

from guided_operator.api import GuidedModel
from guided_operator.api.network_policy import NetworkPeer
from guided_operator.builders.labels import metadata, selector
from guided_operator.builders.objects import manifest
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.workload import is_grouped

Object = dict[str, Any]
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def network_policy(gm: GuidedModel, site: Site) -> Object | None:
    """Return who may connect to the pods; None: the cluster says.

    A group's pods always have one: what vLLM's ranks say to each other is neither authenticated nor checked.
    """
    wanted = gm.spec.network_policy
    if wanted is None and not is_grouped(gm):
        return None
    rules: list[Object] = []
    if is_grouped(gm):
        rules.append({"from": [{"podSelector": {"matchLabels": selector(gm)}}]})
    public = _ports(site.ports.engine, site.ports.sidecar)
    if wanted is None:
        rules.append({"ports": public})
    else:
        operator = {"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: site.operator_namespace}}}
        rules.append({"ports": _ports(site.ports.sidecar), "from": [operator]})
        if wanted.allow_from:  # an empty list would mean everybody
            rules.append({"ports": public, "from": [_peer(peer) for peer in wanted.allow_from]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": manifest(metadata(gm)),
        "spec": {
            "podSelector": {"matchLabels": selector(gm)},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }


def _ports(*numbers: int) -> list[Object]:
    return [{"port": number, "protocol": "TCP"} for number in numbers]


def _peer(peer: NetworkPeer) -> Object:
    pods: Object = {"podSelector": {"matchLabels": peer.pod_labels} if peer.pod_labels else {}}
    if peer.namespace_labels:
        pods["namespaceSelector"] = {"matchLabels": peer.namespace_labels}
    return pods
