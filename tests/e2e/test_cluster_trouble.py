"""Pods that do not come up, on a real node: the resource's status says why."""

from collections.abc import Iterator
from typing import Any

import pytest
from devtools import deploy
from devtools.kubectl import Kubectl

from support.cluster import Node
from support.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

NAMESPACE = "trouble"
OF = f"-n={NAMESPACE}"
SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}}


def model(name: str, **spec: Any) -> dict[str, Any]:
    """The sample on one rank, small, with fields of its spec replaced; those of its engine are merged."""
    made = deploy.sample()
    engine = made["spec"]["engine"] | spec.pop("engine", {})
    made["metadata"] = {"name": name, "namespace": NAMESPACE}
    del made["spec"]["telemetry"]
    made["spec"] |= {"parallelism": {"tensor": 1}, "resources": SMALL, "sidecar": {"resources": SMALL}}
    made["spec"] |= {**spec, "engine": engine}
    return made


# All at once: what each of them is, the reason that Ready has, and words of its message.
TROUBLES: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "image": (
        {"engine": {"image": "localhost/none:1"}},
        "ImagePullFailed",
        ("container sidecar", "localhost/none:1"),
    ),
    "place": (
        {"resources": {"requests": {"cpu": "1000"}}},
        "Unschedulable",
        ("Insufficient cpu",),
    ),
    "crash": (
        {"engine": {"args": ["--dtype", "float31"]}},
        "ContainerCrashed",
        ("container engine ended with exit code 2", "argument --dtype: invalid choice: 'float31'"),
    ),
    "memory": (
        {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}},
        "OutOfMemory",
        ("container engine",),
    ),
    "hub": (
        {"model": {"uri": "hf://nobody/nothing"}},
        "ModelDownloadFailed",
        ("container engine ended with exit code 1", "OSError"),  # no network, or no such model
    ),
}


@pytest.fixture(scope="module")
def kubectl(node: Node) -> Iterator[Kubectl]:
    """The node, with all troubled models applied."""
    found = Kubectl(node.kubeconfig)
    deploy.install(node.devtools)
    found.run("create", "namespace", NAMESPACE)
    deploy.create_models(found, deploy.models(), NAMESPACE)
    found.apply(*(model(name, **spec) for name, (spec, *_) in TROUBLES.items()))
    yield found
    found.run("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.parametrize("name", TROUBLES)
def test_status_says_what_keeps_a_pod(kubectl: Kubectl, name: str) -> None:
    _, reason, words = TROUBLES[name]

    def ready() -> dict[str, Any]:
        status = kubectl.get(f"guidedmodel/{name}", OF).get("status", {})
        return next((dict(one) for one in status.get("conditions", ()) if one["type"] == "Ready"), {})

    def told() -> bool:
        found = ready()
        return found.get("reason") == reason and all(word in found["message"] for word in words)

    eventually(told, 120, lambda: f"Ready of {name}: {ready()}")
    assert ready()["status"] == "False"
