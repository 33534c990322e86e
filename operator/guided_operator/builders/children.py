"""The children of a GuidedModel: those beside its pods, in an order in which they can be created."""

from collections.abc import Mapping
from typing import Final

from guided_operator.api import GuidedModel
from guided_operator.api.network_policy import NetworkPeer
from guided_operator.builders.monitoring import pod_monitor
from guided_operator.builders.objects import Object, is_grouped, leader_selector, metadata, selector
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.workload import nodes_name

# One at a time leaves the others to serve; a single pod may go too, or no node could ever be drained.
_MAX_EVICTED: Final = 1
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def before_pods(gm: GuidedModel, site: Site) -> list[Object]:
    """Return what pods need to be there, beside their ConfigMaps."""
    policy = _network_policy(gm, site)
    return [
        _service_account(gm),
        *([policy] if policy is not None else []),
        *([_headless_service(gm)] if is_grouped(gm) else []),
        _service(gm, site),
    ]


def after_pods(gm: GuidedModel) -> list[Object]:
    """Return what looks after the pods."""
    monitor = pod_monitor(gm)
    return [_disruption_budget(gm), *([monitor] if monitor is not None else [])]


def config_map(gm: GuidedModel, name: str, data: Mapping[str, str]) -> Object:
    """Return a ConfigMap that the pods mount, `data` by file name."""
    return {"apiVersion": "v1", "data": dict(data), "kind": "ConfigMap", "metadata": metadata(gm, name)}


def url(namespace: str, name: str, site: Site) -> str:
    """Return the URL of the OpenAI API within the cluster, without /v1."""
    return f"http://{name}.{namespace}.svc:{site.ports.engine}"


def _service_account(gm: GuidedModel) -> Object:
    return {
        "apiVersion": "v1",
        "automountServiceAccountToken": False,
        "kind": "ServiceAccount",
        "metadata": metadata(gm),
    }


def _service(gm: GuidedModel, site: Site) -> Object:
    """Return the Service in front of the pods that serve the API."""
    number = site.ports.engine
    port = {"name": "http", "port": number, "protocol": "TCP", "targetPort": number}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(gm),
        "spec": {"ports": [port], "selector": leader_selector(gm)},
    }


def _headless_service(gm: GuidedModel) -> Object:
    """Return the Service that gives each pod of a group its name in DNS, also before it is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(gm, nodes_name(gm)),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector(gm)},
    }


def _disruption_budget(gm: GuidedModel) -> Object:
    """Return how many of the model's pods a drained node may take."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(gm),
        "spec": {
            "maxUnavailable": _MAX_EVICTED,
            "selector": {"matchLabels": selector(gm)},
            # A pod that never gets ready must not keep its node from being drained.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _network_policy(gm: GuidedModel, site: Site) -> Object | None:
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
        "metadata": metadata(gm),
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
