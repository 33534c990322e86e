"""What the pod's spans say about where they come from."""

import importlib.metadata
import socket
from typing import Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from guided_contract.compatibility import VLLM_DISTRIBUTIONS
from guided_contract.config import PodConfig
from guided_sidecar.telemetry import conventions as c

_SDKS: Final = "telemetry.sdk."  # what the process that made a span says of itself


def resource(config: PodConfig, *, pod: str = "") -> Resource:
    """Return the resource of the sidecar's spans.

    OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win over what we would say ourselves.

    Parameters
    ----------
    pod
        The pod's Kubernetes name; "" for local processes.
    """
    ours = Resource.create(dict(attributes(config, pod=pod)), c.SCHEMA_URL)
    return ours.merge(OTELResourceDetector().detect())


def of_the_pod(of: Resource) -> dict[str, str]:
    """Return what holds for the spans of every process of the pod."""
    return {name: str(value) for name, value in of.attributes.items() if not name.startswith(_SDKS)}


def attributes(config: PodConfig, *, pod: str = "") -> dict[str, str]:
    """Return what we say of the pod ourselves; see `resource`."""
    described = {
        c.SERVICE_NAME: config.name,
        c.SERVICE_NAMESPACE: config.namespace,
        c.SERVICE_INSTANCE_ID: pod or socket.gethostname(),
        c.SERVICE_VERSION: _version("guidedmodel"),
        c.MODEL_NAME: config.name,
        c.MODEL_SERVED_NAME: config.served_name,
        c.MODEL_REVISION: config.revision or "",
        c.VLLM_VERSION: next(filter(None, map(_version, VLLM_DISTRIBUTIONS)), ""),
    }
    if pod:
        described |= {c.K8S_NAMESPACE_NAME: config.namespace, c.K8S_POD_NAME: pod}
    return {name: value for name, value in described.items() if value}


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
