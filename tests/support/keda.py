"""The real KEDA beside a test's API server: its operator, and the adapter that serves external metrics."""

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools import golang, pki
from devtools.process import Process, free_ports

from support.cluster import Cluster

_NAMESPACE = "keda"
_ADAPTER = "keda-metrics-apiserver"
_API = "v1beta1.external.metrics.k8s.io"


@contextmanager
def running(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Have KEDA installed and running, as cluster-admin, while the context lasts."""
    programs = golang.keda()
    metrics, probe, service, secure, adapter_metrics = map(str, free_ports(5))
    certificates = folder / "certs"  # by both, who speak gRPC with each other and prove who they are
    pki.Authority(certificates).issue("tls", "keda", hosts=["localhost", "127.0.0.1"])
    environment = dict(os.environ) | {
        "KUBECONFIG": str(cluster.kubeconfig),
        "POD_NAMESPACE": _NAMESPACE,
        "WATCH_NAMESPACE": "",
        "KEDA_CLUSTER_OBJECT_NAMESPACE": _NAMESPACE,
    }
    operator = [
        programs / "operator",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{probe}",
        f"--metrics-service-bind-address=127.0.0.1:{service}",
        f"--cert-dir={certificates}",
    ]
    adapter = [
        programs / "adapter",
        "--bind-address=127.0.0.1",
        f"--secure-port={secure}",
        f"--port={adapter_metrics}",
        f"--metrics-service-address=localhost:{service}",
        f"--cert-dir={certificates}",
        f"--tls-cert-file={certificates}/tls.crt",
        f"--tls-private-key-file={certificates}/tls.key",
        f"--lister-kubeconfig={cluster.kubeconfig}",
        f"--authentication-kubeconfig={cluster.kubeconfig}",
        f"--authorization-kubeconfig={cluster.kubeconfig}",
    ]
    for crds in sorted((programs / "crds").iterdir()):
        cluster.kubectl("create", "-f", str(crds))
    cluster.kubectl("create", "namespace", _NAMESPACE)
    cluster.apply(_SERVICE.format(name=_ADAPTER, namespace=_NAMESPACE, api=_API, port=secure))
    started: list[Process] = []
    try:
        for name, command in (("keda-operator", operator), ("keda-adapter", adapter)):
            started.append(Process.start(name, command, folder / f"{name}.log", environment=environment))
        started[0].wait_ready(lambda: _answers(f"http://127.0.0.1:{probe}/readyz"), 60)
        started[1].wait_ready(lambda: _is_available(cluster), 60)
        yield
    finally:
        for process in reversed(started):
            process.stop()
        cluster.kubectl("delete", "apiservice", _API)
        cluster.kubectl("delete", "namespace", _NAMESPACE, "--wait=false")
        cluster.kubectl("delete", "-f", str(programs / "crds"), "--wait=false")


# The API that the adapter serves; an external name, as a Service's endpoints cannot be on a loopback.
_SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{type: ExternalName, externalName: localhost, ports: [{{port: {port}}}]}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: {api}}}
spec:
  service: {{name: {name}, namespace: {namespace}, port: {port}}}
  group: external.metrics.k8s.io
  version: v1beta1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
"""


def _is_available(cluster: Cluster) -> bool:
    found = cluster.get("apiservice", _API).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Available" and each["status"] == "True" for each in found)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False
