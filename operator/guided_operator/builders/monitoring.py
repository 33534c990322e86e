"""How Prometheus finds the metrics of a model's pods."""

import re
from math import ceil
from typing import Final

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.builders.objects import Object, metadata, selector


def _pod_label(name: str) -> list[str]:
    return [f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}"]


# Alerts and dashboard tell models apart by it; the namespace and the pod Prometheus adds by itself.
_MODEL: Final[Object] = {
    "sourceLabels": _pod_label(names.LABEL_NAME),
    "targetLabel": "model",
    "action": "replace",  # the server adds it; written out, the live object equals the wanted one
}
# A group's first node serves the API, and vLLM's metrics with it.
_FIRST_NODE: Final[Object] = {
    "sourceLabels": _pod_label(names.LABEL_NODE),
    "regex": "[1-9].*",
    "action": "drop",
}
# By the names of the pod's ports: the sidecar's own, and vLLM's.
_RELABELINGS: Final[dict[str, list[Object]]] = {"sidecar": [_MODEL], "http": [_FIRST_NODE, _MODEL]}


def pod_monitor(gm: GuidedModel) -> Object | None:
    """Return the PodMonitor; None: the spec asks for none."""
    wanted = gm.spec.telemetry.metrics if gm.spec.telemetry is not None else None
    if wanted is None:
        return None
    about = metadata(gm)
    about["labels"] = {**wanted.labels, **about["labels"]}  # ours find it again
    interval = f"{ceil(seconds(wanted.interval))}s"
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": about,
        "spec": {
            "selector": {"matchLabels": selector(gm)},
            "podMetricsEndpoints": [
                {"port": port, "path": "/metrics", "interval": interval, "relabelings": relabelings}
                for port, relabelings in _RELABELINGS.items()
            ],
        },
    }
