"""The sample on the test node, Ready, as the modules about it share it: starting it takes a minute."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from devtools import deploy
from devtools.kubectl import Kubectl

from support.cluster import Node

NAMESPACE = "e2e"
OF = f"-n={NAMESPACE}"
PODS = "guidedmodel.io/name=tiny"


@dataclass(frozen=True, slots=True)
class Served:
    """The sample, Ready on the node. `pod` and `url` are of its first pod."""

    node: Node
    kubectl: Kubectl
    pod: str
    url: str

    def status(self) -> dict[str, Any]:
        """Return the resource's status."""
        status: dict[str, Any] = self.kubectl.get("guidedmodel/tiny", OF)["status"]
        return status

    def condition(self, name: str) -> dict[str, Any]:
        """Return a condition of the resource."""
        return next(dict(one) for one in self.status()["conditions"] if one["type"] == name)

    def restarts(self) -> dict[str, int]:
        """Return how often each container of the pod was restarted."""
        pod = self.kubectl.get(f"pod/{self.pod}", OF)["status"]
        containers = pod["containerStatuses"] + pod["initContainerStatuses"]
        return {one["name"]: one["restartCount"] for one in containers}

    def _pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.kubectl.get("pods", OF, f"-l={PODS}")["items"]
        return found

    def pods(self) -> set[str]:
        """Return the names of its pods, with those that are going."""
        return {one["metadata"]["name"] for one in self._pods()}

    def images(self) -> set[str]:
        """Return the images that the engines of its pods are of."""
        return {one["spec"]["containers"][0]["image"] for one in self._pods()}

    def ready(self) -> set[str]:
        """Return the names of the pods that are ready and stay."""
        return {
            one["metadata"]["name"]
            for one in self._pods()
            if "deletionTimestamp" not in one["metadata"]
            and ("Ready", "True") in {(c["type"], c["status"]) for c in one["status"].get("conditions", ())}
        }

    def scale(self, replicas: int) -> None:
        """Ask for so many pods."""
        self.kubectl.run("scale", "guidedmodel/tiny", OF, f"--replicas={replicas}")

    def execute(self, container: str, *command: str, pod: str = "") -> str:
        """Run a command in a container of the pod."""
        return self.kubectl.run("exec", OF, pod or self.pod, f"-c={container}", "--", *command)


def sample() -> dict[str, Any]:
    """Return the sample as the node serves it."""
    made = deploy.sample()
    made["metadata"]["namespace"] = NAMESPACE
    # Four fit on a node of two cores, and two ranks that use both leave the sidecar its half.
    made["spec"]["resources"]["requests"]["cpu"] = "200m"
    made["spec"]["sidecar"]["resources"]["requests"]["cpu"] = "200m"
    return made


@pytest.fixture(scope="session")
def served(node: Node) -> Iterator[Served]:
    """The sample on the test node, with everything that it needs, Ready."""
    kubectl = Kubectl(node.kubeconfig)
    deploy.install(node.devtools)
    deploy.create_jaeger(kubectl)
    kubectl.run("create", "namespace", NAMESPACE)
    deploy.create_models(kubectl, deploy.models(), NAMESPACE)
    kubectl.apply(sample())
    deploy.wait_ready(kubectl, "tiny", namespace=NAMESPACE)
    [pod] = kubectl.get("pods", OF, f"-l={PODS}")["items"]
    name = pod["metadata"]["name"]
    with kubectl.forwarded(f"pod/{name}", 8000, NAMESPACE) as url:
        yield Served(node, kubectl, name, url)
