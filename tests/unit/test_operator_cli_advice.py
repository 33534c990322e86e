"""`guidedmodel status` names the pod and the container to look at, and whose limits to raise."""

from typing import Any

import pytest

from guided_operator.cli.cluster import advice


def model(reason: str, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "False", "reason": reason}]
    return {
        "metadata": {"name": "tiny", "namespace": "models", "generation": 1},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "conditions": conditions, **status},
    }


FAILED = "kubectl logs -n models {} --previous --tail=50"


@pytest.mark.parametrize("container", ["plugin", "sidecar", "engine"])
def test_the_log_to_see_is_that_of_the_container_that_failed(container: str) -> None:
    crashed = {"reason": "ContainerCrashed", "container": container, "revision": "new"}
    shown = model(
        "ContainerCrashed",
        revision="new",
        pods={
            "worst": [
                {"name": "tiny-1", **crashed, "container": "other", "revision": "old"},
                {"name": "tiny-2", "ready": True, "revision": "new"},
                {"name": "tiny-3", **crashed},
            ]
        },
    )
    assert advice.steps(shown) == [f"see its last output: {FAILED.format(f'tiny-3 -c {container}')}"]


def test_a_status_that_names_no_container_has_all_of_them_looked_at() -> None:
    shown = model("ContainerCrashed")
    everywhere = FAILED.format("-l guidedmodel.io/name=tiny --all-containers --ignore-errors")
    assert advice.steps(shown) == [f"see its last output: {everywhere}"]


@pytest.mark.parametrize(
    ("container", "field"),
    [("sidecar", "sidecar.resources.limits.memory"), ("engine", "spec.resources.limits.memory")],
)
def test_memory_is_raised_where_it_was_short(container: str, field: str) -> None:
    pods = {"worst": [{"name": "tiny-1", "reason": "OutOfMemory", "container": container}]}
    [step] = advice.steps(model("OutOfMemory", pods=pods))
    assert field in step
    assert ("engine.maxModelLen" in step) == (container == "engine")
