"""How Prometheus finds the metrics of a model's pods."""

from math import ceil
from typing import Any

from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.builders.labels import metadata, selector
from guided_operator.builders.objects import manifest

Object = dict[str, Any]


def pod_monitor(gm: GuidedModel) -> Object | None:
    """Return the PodMonitor; None: the spec asks for none."""
    wanted = gm.spec.telemetry.metrics if gm.spec.telemetry is not None else None
    if wanted is None:
        return None
    about = manifest(metadata(gm))
    about["labels"] = {**wanted.labels, **about["labels"]}  # ours find it again
    interval = f"{ceil(seconds(wanted.interval))}s"
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": about,
        "spec": {
            "selector": {"matchLabels": selector(gm)},
            # By the names of the pod's ports: the sidecar's own, and vLLM's.
            "podMetricsEndpoints": [
                {"port": port, "path": "/metrics", "interval": interval} for port in ("sidecar", "http")
            ],
        },
    }
