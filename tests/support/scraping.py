"""Which targets a PodMonitor makes of pods, and with which labels: as the Prometheus operator writes it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Object = Mapping[str, Any]


def endpoints(monitor: Object) -> list[Object]:
    """Return a PodMonitor's endpoints."""
    found: list[Object] = monitor["spec"]["podMetricsEndpoints"]
    return found


def relabel_configs(monitor: Object, endpoint: Object) -> list[Object]:
    """Return an endpoint's relabel_configs, as prometheus-operator's generatePodMonitorConfig does."""
    metadata, port = monitor["metadata"], endpoint["port"]
    chosen = sorted(monitor["spec"]["selector"]["matchLabels"].items())
    job = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
    return [
        *(
            _keep([_pod_label(name), _pod_label(name, "labelpresent")], f"({value});true")
            for name, value in chosen
        ),
        _keep(["__meta_kubernetes_pod_container_port_name"], port),
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        {"target_label": "job", "replacement": job},
        {"target_label": "endpoint", "replacement": port},
        *(_snake(each) for each in endpoint.get("relabelings", ())),
    ]


def discovered(pod: Object, namespace: str, name: str) -> Iterator[dict[str, str]]:
    """Yield what Prometheus discovers of a pod made from a template: labels for each container's port."""
    labels = pod["metadata"]["labels"]
    about = {_pod_label(key): value for key, value in labels.items()}
    about |= {_pod_label(key, "labelpresent"): "true" for key in labels}
    about |= {"__meta_kubernetes_namespace": namespace, "__meta_kubernetes_pod_name": name}
    for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
        for port in container.get("ports", ()):
            address = f"{name}:{port['containerPort']}"
            yield {
                **about,
                "__address__": address,
                "instance": address,
                "__meta_kubernetes_pod_container_name": container["name"],
                "__meta_kubernetes_pod_container_port_name": port["name"],
            }


def _keep(source: list[str], regex: str) -> Object:
    return {"action": "keep", "source_labels": source, "regex": regex}


def _pod_label(name: str, what: str = "label") -> str:
    return f"__meta_kubernetes_pod_{what}_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}"


def _snake(relabeling: Object) -> Object:
    return {re.sub(r"(?<!^)([A-Z])", r"_\1", key).lower(): value for key, value in relabeling.items()}
