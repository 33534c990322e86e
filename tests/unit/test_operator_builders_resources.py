"""What the containers of a pod ask for: accelerators by rank, and CPU and memory where nobody says."""

from typing import Any

import pytest

from guided_operator.api import GuidedModel
from support.manifests import containers_of as containers
from support.manifests import environment, guided_model
from support.manifests import pod_of as pod

CLAIMS = [
    {"name": "gpus", "resourceClaimTemplateName": "four-gpus"},
    {"name": "shared", "resourceClaimName": "c"},
]
CPU = {"type": "None"}


def resources(gm: GuidedModel, container: str = "engine") -> dict[str, Any]:
    found: dict[str, Any] = containers(gm)[container]["resources"]
    return found


@pytest.mark.parametrize(
    ("accelerator", "expected"),
    [
        ({}, {"nvidia.com/gpu": "4"}),
        ({"resource": "nvidia.com/mig-1g.10gb", "perRank": 2}, {"nvidia.com/mig-1g.10gb": "8"}),
        (CPU, {}),
        ({"type": "Claims", "claims": CLAIMS}, {}),
    ],
)
def test_accelerators_follow_from_parallelism(accelerator: dict[str, Any], expected: dict[str, str]) -> None:
    own = {"requests": {"cpu": "1"}, "limits": {"memory": "1.5Gi"}}
    gm = guided_model(engine__accelerator=accelerator, parallelism__tensor=4, resources=own)
    found = resources(gm)
    assert found["limits"] == {"memory": "1536Mi"} | expected
    assert found["requests"] == {"cpu": "1"} | expected
    for other in ("sidecar", "plugin"):
        parts = resources(gm, other)
        assert not {*parts["requests"], *parts["limits"]} & expected.keys(), other


def test_claims_are_the_pods_and_the_engines() -> None:
    accelerator = {"type": "Claims", "claims": CLAIMS}
    channel = {"name": "channel", "resourceClaimTemplateName": "compute-domain"}
    gm = guided_model(engine__accelerator=accelerator, pod={"resourceClaims": [channel]})
    assert pod(gm)["resourceClaims"] == [*CLAIMS, channel]
    assert resources(gm)["claims"] == [{"name": "gpus"}, {"name": "shared"}, {"name": "channel"}]
    assert not any("claims" in resources(gm, other) for other in ("sidecar", "plugin"))
    assert "resourceClaims" not in pod(guided_model())
    assert "claims" not in resources(guided_model())


@pytest.mark.parametrize(
    ("accelerator", "engine"),
    [
        ({}, None),
        ({"resource": "nvidia.com/mig-1g.10gb"}, None),
        ({"resource": "amd.com/gpu"}, "void"),
        ({"type": "Claims", "claims": CLAIMS}, "void"),
        (CPU, "void"),
    ],
)
def test_an_image_gets_no_gpus_by_asking_for_all(accelerator: dict[str, Any], engine: str | None) -> None:
    """NVIDIA's device plugin names the engine's GPUs in a variable that a value of ours would replace."""
    gm = guided_model(engine__accelerator=accelerator)
    assert environment(containers(gm)["engine"]).get("NVIDIA_VISIBLE_DEVICES") == engine
    assert environment(containers(gm)["sidecar"])["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize(
    ("parallelism", "own", "requests", "limits"),
    [
        # By its ranks, where the user says nothing.
        ({}, {}, {"cpu": "3", "memory": "8Gi"}, {}),
        ({"tensor": 2, "data": 4}, {}, {"cpu": "16", "memory": "36Gi"}, {}),
        ({"tensor": 8, "nodes": 2}, {}, {"cpu": "6", "memory": "20Gi"}, {}),
        # Also in part; where only a limit is said, Kubernetes takes it for the request.
        ({}, {"requests": {"cpu": "16"}}, {"cpu": "16", "memory": "8Gi"}, {}),
        ({}, {"limits": {"memory": "6Gi"}}, {"cpu": "3"}, {"memory": "6Gi"}),
        ({}, {"limits": {"rdma/hca": 1}}, {"cpu": "3", "memory": "8Gi"}, {"rdma/hca": "1"}),
    ],
)
def test_an_engine_asks_for_what_the_user_says_and_else_by_its_ranks(
    parallelism: dict[str, int], own: Any, requests: dict[str, str], limits: dict[str, str]
) -> None:
    found = resources(guided_model(engine__accelerator=CPU, parallelism=parallelism, resources=own))
    assert (found["requests"], found.get("limits", {})) == (requests, limits)


@pytest.mark.parametrize(
    ("own", "requests", "limits"),
    [
        ({"limits": {"cpu": 2}}, {"memory": "512Mi"}, {"cpu": "2", "memory": "4Gi"}),
        ({"requests": {"memory": "6Gi"}}, {"cpu": "100m", "memory": "6Gi"}, {}),
        ({"limits": {"memory": "8Gi"}}, {"cpu": "100m"}, {"memory": "8Gi"}),
    ],
)
def test_the_sidecar_keeps_what_the_user_does_not_say(
    own: Any, requests: dict[str, str], limits: dict[str, str]
) -> None:
    found = resources(guided_model(sidecar={"resources": own}), "sidecar")
    assert (found["requests"], found.get("limits", {})) == (requests, limits)


def test_the_copy_of_the_plugin_asks_for_little() -> None:
    assert resources(guided_model(), "plugin")["requests"] == {"cpu": "10m", "memory": "32Mi"}
