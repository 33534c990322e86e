"""The environment in which OpenTelemetry's SDK, vLLM's and the sidecar's alike, sends what a pod tells.

Fields of the resource win over variables; see docs/decisions/0036-whose-word-on-telemetry.md.
"""

import importlib.metadata
import socket
from typing import Final
from urllib.parse import quote

from guided_contract.compatibility import VLLM_DISTRIBUTIONS
from guided_contract.config import PodConfig, TelemetryConfig
from guided_contract.otel_environment import Environment, exporter_word

_OTLP: Final = "OTEL_EXPORTER_OTLP_"
_ALWAYS: Final = ("_TIMEOUT", "_COMPRESSION")  # no field says them
_RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
_TRACES_PATH: Final = "/v1/traces"


def traces_url(telemetry: TelemetryConfig) -> str | None:
    """Return where traces go, as exporters and vLLM want it; None: nowhere."""
    endpoint = telemetry.endpoint
    if endpoint is None or telemetry.protocol == "GRPC":
        return endpoint
    return endpoint.rstrip("/").removesuffix(_TRACES_PATH) + _TRACES_PATH


def environment(pod: PodConfig, env: Environment) -> dict[str, str]:
    """Return `env` with what the pod's resource says of where telemetry goes, and what it is of."""
    telemetry, told = pod.telemetry, dict(env)
    if telemetry.endpoint is not None:
        protocol = "grpc" if telemetry.protocol == "GRPC" else "http/protobuf"
        if telemetry.endpoint != exporter_word(env, "ENDPOINT"):
            # Headers and certificates of the environment are for its own collector.
            told = {name: word for name, word in env.items() if _is_kept(name)}
            base = telemetry.endpoint.rstrip("/").removesuffix(_TRACES_PATH)
            told |= {f"{_OTLP}ENDPOINT": base, f"{_OTLP}PROTOCOL": protocol}
        told[f"{_OTLP}TRACES_PROTOCOL"] = protocol
    attributes = (f"{name}={quote(value)}" for name, value in resource_attributes(pod, env).items())
    return told | {_RESOURCE: ",".join((*attributes, *filter(None, (env.get(_RESOURCE),))))}


def _is_kept(name: str) -> bool:
    return not name.startswith(_OTLP) or name.endswith(_ALWAYS)


def resource_attributes(pod: PodConfig, env: Environment) -> dict[str, str]:
    """Return what we say of the pod: words of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win."""
    host = socket.gethostname()  # in a cluster the pod's name
    told = {
        "service.name": pod.name,
        "service.namespace": pod.namespace,
        "service.instance.id": host,
        "service.version": _version("guidedmodel"),
        "guidedmodel.name": pod.name,
        "guidedmodel.served_name": pod.served_name,
        "guidedmodel.model.revision": pod.revision or "",
        "guidedmodel.vllm.version": next(filter(None, map(_version, VLLM_DISTRIBUTIONS)), ""),
    }
    if "KUBERNETES_SERVICE_HOST" in env:  # the kubelet sets it in every pod
        told |= {"k8s.namespace.name": pod.namespace, "k8s.pod.name": host}
    return {name: value for name, value in told.items() if value}


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
