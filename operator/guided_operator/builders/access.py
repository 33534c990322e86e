"""How pods are reached: the Service of the API, the names of a group's pods, and who may connect."""

from typing import Any, Final

from kubernetes.aio import client as k8s

from guided_operator.api import GuidedModel
from guided_operator.api.network_policy import NetworkPeer
from guided_operator.builders.labels import leader_selector, metadata, selector
from guided_operator.builders.objects import manifest
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.workload import is_grouped, nodes_name

Object = dict[str, Any]
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def service(gm: GuidedModel, site: Site) -> k8s.V1Service:
    """Return the Service in front of the pods that serve the API."""
    port = k8s.V1ServicePort(
        name="http", port=site.ports.engine, target_port=site.ports.engine, protocol="TCP"
    )
    return k8s.V1Service(
        api_version="v1",
        kind="Service",
        metadata=metadata(gm),
        spec=k8s.V1ServiceSpec(selector=leader_selector(gm), ports=[port]),
    )


def headless_service(gm: GuidedModel) -> k8s.V1Service:
    """Return the Service that gives each pod of a group its name in DNS, also before it is ready."""
    return k8s.V1Service(
        api_version="v1",
        kind="Service",
        metadata=metadata(gm, nodes_name(gm)),
        spec=k8s.V1ServiceSpec(selector=selector(gm), cluster_ip="None", publish_not_ready_addresses=True),
    )


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
