"""How pods are reached: the Service of the API, and the names of a group's pods."""

from kubernetes.aio import client as k8s

from guided_operator.api import GuidedModel
from guided_operator.builders.labels import leader_selector, metadata, selector
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.workload import nodes_name


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
