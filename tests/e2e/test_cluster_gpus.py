"""GPUs per pod follow from parallelism; the scheduler holds the node to what it advertises."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from devtools import deploy
from devtools.control_plane import NODE_NAME
from devtools.kubectl import Kubectl

from support.cluster import Node
from support.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

NAMESPACE = "gpus"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def kubectl(node: Node) -> Iterator[Kubectl]:
    """The operator on a node that says that it has four GPUs."""
    found = Kubectl(node.kubeconfig)
    deploy.install(node.devtools)
    _advertise(found, "4")
    found.run("create", "namespace", NAMESPACE)
    deploy.create_models(found, deploy.models(), NAMESPACE)
    yield found
    found.run("delete", "namespace", NAMESPACE, "--wait=false")  # the node itself goes soon
    _advertise(found, None)


def test_each_rank_gets_a_gpu_and_the_node_has_no_more_than_it_says(kubectl: Kubectl) -> None:
    kubectl.apply(_model("three", tensor=3))
    three = _pod(kubectl, "three")
    assert _engine(three)["resources"]["limits"][GPU] == "3"
    assert _engine(three)["resources"]["requests"][GPU] == "3"
    sidecar = next(one for one in three["spec"]["initContainers"] if one["name"] == "sidecar")
    assert GPU not in sidecar["resources"].get("limits", {})
    shm = next(volume["emptyDir"] for volume in three["spec"]["volumes"] if volume["name"] == "shm")
    assert shm == {"medium": "Memory", "sizeLimit": "2560Mi"}
    eventually(lambda: _pod(kubectl, "three")["spec"].get("nodeName") == NODE_NAME, 90, "three is scheduled")

    kubectl.apply(_model("two", tensor=2))
    eventually(lambda: f"Insufficient {GPU}" in _why_pending(_pod(kubectl, "two")), 90, "two has to wait")

    kubectl.run("delete", "guidedmodel/three", f"-n={NAMESPACE}")
    eventually(
        lambda: _pod(kubectl, "two")["spec"].get("nodeName") == NODE_NAME,
        90,
        "two takes what three gave back",
    )


def _model(name: str, tensor: int) -> dict[str, Any]:
    model = copy.deepcopy(deploy.sample())
    model["metadata"] = {"name": name, "namespace": NAMESPACE}
    # Nothing to run, so that pods come and go at once: only where they are put, and with what, is looked at.
    model["spec"]["engine"] |= {"accelerator": {"resource": GPU}, "image": "localhost/none:1"}
    model["spec"]["parallelism"] = {"tensor": tensor}
    model["spec"]["resources"] = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    model["spec"]["sidecar"] = {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}}
    return model


def _pod(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def one() -> bool:
        found[:] = kubectl.get("pods", f"-n={NAMESPACE}", f"-l=guidedmodel.io/name={name}")["items"]
        return len(found) == 1

    eventually(one, 90, f"a pod of {name}")
    return found[0]


def _engine(pod: dict[str, Any]) -> dict[str, Any]:
    [engine] = pod["spec"]["containers"]
    return dict(engine)


def _why_pending(pod: dict[str, Any]) -> str:
    conditions = pod["status"].get("conditions", [])
    return " ".join(one.get("message", "") for one in conditions if one["type"] == "PodScheduled")


def _advertise(kubectl: Kubectl, count: str | None) -> None:
    patch = json.dumps({"status": {"capacity": {GPU: count}, "allocatable": {GPU: count}}})
    kubectl.run("patch", f"node/{NODE_NAME}", "--subresource=status", "--type=merge", f"--patch={patch}")
