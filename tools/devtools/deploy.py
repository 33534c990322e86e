"""Puts GuidedModel and a sample onto a cluster: what `make cluster` and its tests share."""

import time
from pathlib import Path
from typing import Any

import yaml

from devtools import chart, golang, image, isolation, node_init, tinymodel
from devtools.cluster import NodeCluster
from devtools.kubectl import Kubectl, KubectlError

ROOT = golang.TOOLS.parent
SAMPLE = ROOT / "manifests/samples/tiny-cpu.yaml"
NAMESPACE = "guidedmodel-system"
READY_TIMEOUT_S = 180.0


def install(cluster: NodeCluster) -> None:
    """Build our image, bring it and the engine's to the node, and install the chart."""
    ours = image.operator()
    for archive in (ours, image.engine()):
        cluster.import_image(archive)
    # The tag stays the same: without a changed annotation, running pods would stay what they are.
    built = f"--set-string=podAnnotations.built={ours.parent.name}"
    chart.install(NAMESPACE, image.OPERATOR, cluster.kubeconfig, "--set=image.pullPolicy=Never", built)


def create_jaeger(kubectl: Kubectl) -> None:
    """Give the node's Jaeger, which runs beside the pods, the name that manifests/observability gives it."""
    about = {"name": "jaeger", "namespace": "observability"}
    port = {"name": "otlp-http", "port": node_init.JAEGER_OTLP_PORT, "protocol": "TCP"}
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "observability"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": {"ports": [port]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": about | {"labels": {"kubernetes.io/service-name": "jaeger"}},
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": [isolation.NODE_ADDRESS]}],
        },
    )


def create_models(kubectl: Kubectl, folder: Path, namespace: str = "default") -> None:
    """Create the claim `models`, bound to a folder of this machine."""
    about = {"name": "models", "namespace": namespace}
    size = {"storage": "1Gi"}
    access = ["ReadOnlyMany"]
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"models-{namespace}"},
            "spec": {
                "capacity": size,
                "accessModes": access,
                "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder), "type": "Directory"},
                "claimRef": about,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": about,
            "spec": {
                "accessModes": access,
                "storageClassName": "",
                "volumeName": f"models-{namespace}",
                "resources": {"requests": size},
            },
        },
    )


def sample() -> dict[str, Any]:
    """Return the sample."""
    loaded: dict[str, Any] = yaml.safe_load(SAMPLE.read_text())
    return loaded


def models() -> Path:
    """Return the folder that the claim `models` holds, built the first time."""
    return tinymodel.thinking()


def wait_ready(
    kubectl: Kubectl, name: str, timeout_s: float = READY_TIMEOUT_S, namespace: str = "default"
) -> float:
    """Wait until a GuidedModel is Ready; return the seconds it took.

    Raises
    ------
    KubectlError
        It is not; the message holds what the cluster says about it.
    """
    began = time.monotonic()
    wait = ["wait", f"guidedmodel/{name}", "--for=condition=Ready", f"--timeout={timeout_s:.0f}s"]
    try:
        kubectl.run(*wait, f"--namespace={namespace}", timeout_s=timeout_s + 30)
    except KubectlError as error:
        raise KubectlError(f"{error}\n{explain(kubectl, name, namespace)}") from error
    return time.monotonic() - began


def explain(kubectl: Kubectl, name: str, namespace: str = "default") -> str:
    """Return what the cluster knows about a GuidedModel: its status, its pods, their logs, the operator's."""
    of = f"--namespace={namespace}"
    selector = f"--selector=guidedmodel.io/name={name}"
    questions = (
        ["get", f"guidedmodel/{name}", of, "-o=yaml"],
        ["get", "deployments,pods", of, "-o=wide"],
        ["get", "events", of, "--sort-by=.lastTimestamp"],
        ["logs", selector, of, "--all-containers", "--prefix", "--tail=60"],
        ["logs", f"--namespace={NAMESPACE}", "deployment/guidedmodel-operator", "--tail=40"],
    )
    return "\n".join(_answer(kubectl, question) for question in questions)


def _answer(kubectl: Kubectl, question: list[str]) -> str:
    try:
        return f"$ kubectl {' '.join(question)}\n{kubectl.run(*question)}"
    except KubectlError as error:
        return f"$ kubectl {' '.join(question)}\n{error}"
