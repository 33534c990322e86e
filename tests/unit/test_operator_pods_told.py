"""What the status says of pods: which container failed, and which pods there are."""

import dataclasses
import datetime as dt

import pytest

from guided_operator.kube.pod_view import ContainerView
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.report import make_status
from support.observed import model, pod, revision_of, serving, situation

NEW = revision_of()
NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
OLD = "0ld0ld0ld0"


def lasting(name: str, restarts: int = 0, code: int | None = None, why: str = "") -> ContainerView:
    return ContainerView(name, restarts, why, "", code, "Error" if code else "")


@pytest.mark.parametrize(
    ("containers", "failed"),
    [
        pytest.param((lasting("plugin", 2, 1, "CrashLoopBackOff"),), "plugin", id="init"),
        pytest.param((lasting("plugin", 0, 0), lasting("sidecar", 1, 139)), "sidecar", id="sidecar"),
        pytest.param(
            (lasting("sidecar", 1, 139), lasting("engine", 3, 1, "CrashLoopBackOff")),
            "engine",
            id="the one that is down, not the one that runs again",
        ),
        pytest.param(
            (lasting("sidecar", why="ImagePullBackOff"), lasting("engine", why="PodInitializing")),
            "sidecar",
            id="image",
        ),
    ],
)
def test_pod_names_the_container_that_failed(containers: tuple[ContainerView, ...], failed: str) -> None:
    found = serving(pod("a", NEW, ready=False, containers=containers))
    [told] = make_status(found, NOW).pods.worst
    assert told.container == failed
    ready = decide(found)["Ready"]
    assert ready.message.startswith(f"pod a: container {failed}")
    assert told.reason == ready.reason


def test_reason_of_the_whole_pod_names_no_container() -> None:
    found = serving(pod("a", NEW, ready=False, unschedulable="no GPU left"))
    [told] = make_status(found, NOW).pods.worst
    assert (told.reason, told.container) == ("Unschedulable", "")


def test_what_is_said_of_pods_is_what_there_is() -> None:
    """GuidedDecoding speaks of the current revision's pods, and the status lists the others, too."""
    old = pod("a", OLD)
    found = serving(old)
    assert (
        decide(found)["GuidedDecoding"].message
        == "no pod of the current revision exists yet, 1 of older ones"
    )
    assert [each.name for each in make_status(found, NOW).pods.worst] == ["a"]
    assert decide(serving())["GuidedDecoding"].message == "there are no pods"


def test_unsupported_image_leaves_what_is_said_of_the_pods_that_run() -> None:
    raw = model()
    raw["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.1.0"
    found = serving(pod("a", NEW))
    edited = situation(dataclasses.replace(found.observed, model=raw))
    assert decide(edited)["Compatible"].status == "False"
    assert decide(edited)["GuidedDecoding"] == decide(found)["GuidedDecoding"]
    assert decide(edited)["GuidedDecoding"].status == "True"
