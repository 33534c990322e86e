"""What the pod's spans say about where they come from."""

import socket

from guided_contract.config import PodConfig
from guided_sidecar.telemetry import conventions


def attributes(config: PodConfig, *, pod: str = "") -> dict[str, str]:
    """Return the resource attributes of this pod's spans.

    Parameters
    ----------
    pod
        The pod's Kubernetes name; "" for local processes.
    """
    described = {
        conventions.SERVICE_NAME: config.name,
        conventions.SERVICE_NAMESPACE: config.namespace,
        conventions.SERVICE_INSTANCE_ID: pod or socket.gethostname(),
        conventions.MODEL_NAME: config.name,
        conventions.MODEL_SERVED_NAME: config.served_name,
    }
    if pod:
        described |= {conventions.K8S_NAMESPACE_NAME: config.namespace, conventions.K8S_POD_NAME: pod}
    return described
