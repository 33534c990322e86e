"""Accelerators, requests and networks of pods on a real API server: kept as sent, and understood as meant."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from devtools import golang

from guided_operator.api import parse
from guided_operator.builders import Site, render
from guided_operator.kube.diff import differences
from support.cluster import Cluster
from support.manifests import changed, minimal
from support.operator_process import install_crd
from support.waiting import eventually

pytestmark = pytest.mark.cluster

needs_claims = pytest.mark.skipif(
    golang.kubernetes_version() == golang.OLDEST_KUBERNETES, reason="ResourceClaims are of Kubernetes 1.34"
)
CLAIMS = {
    "engine__accelerator": {
        "type": "Claims",
        "claims": [{"name": "gpus", "resourceClaimTemplateName": "two-gpus"}],
    },
    "pod": {"resourceClaims": [{"name": "channel", "resourceClaimName": "channel"}]},
}
FIELDS: dict[str, dict[str, Any]] = {
    "AMD": {"engine__accelerator": {"resource": "amd.com/gpu"}, "parallelism": {"tensor": 4}},
    "slices": {"engine__accelerator": {"resource": "nvidia.com/mig-1g.10gb", "perRank": 2}},
    "CPU": {"engine__accelerator": {"type": "None"}},
    "storage": {
        "model__uri": "hf://o/n",
        "resources": {"limits": {"ephemeral-storage": "200Gi"}},
        "storage": {
            "cache": {"persistentVolumeClaim": {"claimName": "compiled"}},
        },
    },
}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "two-gpus"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}]
            }
        }
    },
}


@pytest.fixture(scope="module")
def server(api_server: Cluster) -> Iterator[Cluster]:
    install_crd(api_server)
    return api_server


def deployment(fields: dict[str, Any], namespace: str) -> dict[str, Any]:
    wanted = changed(minimal(), **fields)
    wanted["metadata"]["namespace"] = namespace
    made = render(parse(wanted), Site("guidedmodel:1")).manifests()
    return next(child for child in made if child["kind"] == "Deployment")


def pod(fields: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return a pod of the model, for any node and without its ServiceAccount."""
    template = copy.deepcopy(deployment(fields, namespace)["spec"]["template"])
    template["spec"].pop("serviceAccountName")
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "x", "namespace": namespace}}


@pytest.mark.parametrize("name", [*FIELDS, pytest.param("claims", marks=needs_claims)])
def test_pods_come_back_as_they_were_sent(server: Cluster, name: str) -> None:
    fields = FIELDS.get(name, CLAIMS)
    with server.namespace(f"accelerators-{name.lower()}") as namespace:
        child = deployment(fields, namespace)
        server.apply(child)
        live = server.get("deployment", child["metadata"]["name"], "-n", namespace)
        assert differences(child, live) == []
        made = pod(fields, namespace)
        server.apply(made)
        assert differences(made["spec"], server.get("pod", "x", "-n", namespace)["spec"]) == []


@needs_claims
def test_each_pod_gets_claims_of_the_template(server: Cluster) -> None:
    """Kubernetes' own controller makes a ResourceClaim for the pod, and so has read what was meant."""
    with server.namespace("claims") as namespace:
        server.apply(TEMPLATE | {"metadata": {"name": "two-gpus", "namespace": namespace}})
        server.apply(pod(CLAIMS, namespace))

        def of_the_pod() -> dict[str, Any]:
            found = server.get("pod", "x", "-n", namespace)["status"].get("resourceClaimStatuses", ())
            return {each["name"]: each.get("resourceClaimName") for each in found}

        eventually(lambda: bool(of_the_pod().get("gpus")), what="the pod has its claim")
        claim = server.get("resourceclaim", of_the_pod()["gpus"], "-n", namespace)
        [request] = claim["spec"]["devices"]["requests"]
        assert request["exactly"]["count"] == 2


def test_a_limit_without_a_request_is_the_request(server: Cluster) -> None:
    """So what the user limits gets no default of ours, which could exceed it; the rest does."""
    with server.namespace("requests") as namespace:
        own = {"limits": {"memory": "6Gi"}}
        server.apply(pod({"engine__accelerator": {"type": "None"}, "resources": own}, namespace))
        live = server.get("pod", "x", "-n", namespace)
        [engine] = live["spec"]["containers"]
        assert engine["resources"]["requests"] == {"cpu": "3", "memory": "6Gi"}
        assert live["status"]["qosClass"] == "Burstable"
