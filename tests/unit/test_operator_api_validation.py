"""What the operator refuses although the API server took it."""

from typing import Any

import pytest

from guided_operator.api import GuidedModel
from guided_operator.policy.spec_checks import check
from support.manifests import guided_model


def problems(gm: GuidedModel) -> list[str]:
    return [str(problem) for problem in check(gm)]


def test_a_good_model_has_no_problems() -> None:
    assert problems(guided_model()) == []


@pytest.mark.parametrize(
    "image",
    [
        "vllm/vllm-openai:v0.31.0",
        "vllm/vllm-openai:v0.32.1",
        "registry.example:5000/mirror/vllm-openai-cpu:v0.9.2",
        "vllm:0.33.0rc1",
        "vllm/vllm-openai:v0.31.0@sha256:0",
    ],
)
def test_an_image_of_an_unsupported_vllm(image: str) -> None:
    (problem,) = problems(guided_model(engine__image=image))
    assert problem.startswith("spec.engine.image: vLLM 0.")
    assert "0.32.0" in problem


@pytest.mark.parametrize(
    "image",
    [
        "vllm/vllm-openai:v0.32.0",
        "vllm/vllm-openai:v0.32.0-x86_64",
        "vllm/vllm-openai:latest",
        "vllm/vllm-openai@sha256:00",
        "example.com/my-image:v0.31.0",
        "example.com/vllm/other:1.0.0",
    ],
)
def test_an_image_that_is_supported_or_does_not_tell(image: str) -> None:
    assert problems(guided_model(engine__image=image)) == []


def test_vllms_own_path_runs_with_any_vllm() -> None:
    gm = guided_model(engine__image="vllm/vllm-openai:v0.31.0", guidedDecoding={"placement": "Scheduler"})
    assert problems(gm) == []


@pytest.mark.parametrize(
    ("version", "placement", "expected"),
    [
        ("0.32.0", "Rank", []),
        ("0.31.0", "Rank", ["spec.engine.version"]),
        ("0.31.0", "Scheduler", []),
    ],
)
def test_version_tells_what_the_tag_does_not(version: str, placement: str, expected: list[str]) -> None:
    engine = {"image": "example.com/mine:latest", "version": version}
    gm = guided_model(engine=engine, guidedDecoding__placement=placement)
    assert [problem.field for problem in check(gm)] == expected


def test_version_that_contradicts_the_tag() -> None:
    (problem,) = problems(guided_model(engine__version="0.32.1", guidedDecoding__placement="Scheduler"))
    assert problem == "spec.engine.version: the image's tag says 0.32.0"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}}},
            "spec.resources.requests.cpu: 1500m exceeds the limit, 1",
        ),
        ({"resources": {"limits": {"cpu": "-1"}}}, "spec.resources.limits.cpu: must not be negative, is -1"),
        (
            {"sidecar__resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
            "spec.sidecar.resources.requests.memory: 2Gi exceeds the limit, 1Gi",
        ),
        (
            {"rollout": {"progressDeadline": "29m"}},
            (
                "spec.rollout.progressDeadline: must be at least probes.startupTimeout (30m), "
                "or a starting pod would count as stuck"
            ),
        ),
    ],
)
def test_amounts_that_do_not_go_together(fields: dict[str, Any], expected: str) -> None:
    assert problems(guided_model(**fields)) == [expected]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "nvidia.com/gpu",
            "amd.com/gpu",
            "nvidia.com/mig-1g.10gb",
            "nvidia.com/gpu.shared",
            "google.com/tpu",
        ),
        "example.com/x",
    ],
)
def test_accelerators_stand_in_one_place(name: str) -> None:
    fields = {
        "engine__accelerator": {"resource": "example.com/x"},
        "resources": {"limits": {name: 1, "rdma/hca": 1}},
        "sidecar__resources": {"requests": {name: 1}},
    }
    assert [problem.field for problem in check(guided_model(**fields))] == [
        f"spec.resources.limits.{name}",
        f"spec.sidecar.resources.requests.{name}",
    ]
