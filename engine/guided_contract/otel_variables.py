"""The environment in which OpenTelemetry's SDK, vLLM's and the sidecar's alike, sends what a pod tells.

`telemetry.endpoint` wins over a variable that a cluster injects: that would redirect a model whose owner
named a collector.
"""

import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from guided_contract.compatibility import VLLM_DISTRIBUTIONS, installed
from guided_contract.config import PodConfig, TelemetryConfig

_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
_RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
_TRACES_PATH: Final = "/v1/traces"


def traces_url(telemetry: TelemetryConfig) -> str | None:
    """Return where traces go, as exporters and vLLM want it; None: nowhere."""
    endpoint = telemetry.endpoint
    if endpoint is None or telemetry.protocol == "GRPC":
        return endpoint
    return endpoint.rstrip("/").removesuffix(_TRACES_PATH) + _TRACES_PATH


def environment(pod: PodConfig, env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with how traces are sent, and what they are of."""
    attributes = (f"{name}={quote(value)}" for name, value in resource_attributes(pod, env).items())
    told = {**env, _RESOURCE: ",".join((*attributes, *filter(None, (env.get(_RESOURCE),))))}
    if pod.telemetry.endpoint is not None:
        told[_PROTOCOL] = "grpc" if pod.telemetry.protocol == "GRPC" else "http/protobuf"
    return told


def resource_attributes(pod: PodConfig, env: Mapping[str, str]) -> dict[str, str]:
    """Return what we say of the pod: words of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win."""
    host = socket.gethostname()  # in a cluster the pod's name
    told = {
        "service.name": pod.name,
        "service.namespace": pod.namespace,
        "service.instance.id": host,
        "service.version": installed("guidedmodel") or "",
        "guidedmodel.name": pod.name,
        "guidedmodel.served_name": pod.served_name,
        "guidedmodel.model.revision": pod.revision or "",
        "guidedmodel.vllm.version": next(filter(None, map(installed, VLLM_DISTRIBUTIONS)), ""),
    }
    if "KUBERNETES_SERVICE_HOST" in env:  # the kubelet sets it in every pod
        told |= {"k8s.namespace.name": pod.namespace, "k8s.pod.name": host}
    return {name: value for name, value in told.items() if value}
