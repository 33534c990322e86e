"""What the conditions say of pods: which pod, which of its containers, and why."""

import dataclasses

import msgspec
import pytest

from guided_contract.status import Failure, PodStatus
from guided_operator.kube.pod_view import ContainerView
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.watch.sidecar_status import Page
from support.observed import model, pod, revision_of, serving, situation

NEW = revision_of()
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
    assert decide(found)["Ready"].message.startswith(f"pod a: container {failed}")


def paged(**pages: PodStatus) -> Situation:
    """Return the situation of a model whose pods have these pages, and are as ready as they say."""
    raw = model(replicas=len(pages))
    pods = [pod(name, revision_of(raw), ready=page.ready) for name, page in pages.items()]
    found = serving(*pods, raw=raw)
    read = {f"uid-{name}": Page(page) for name, page in pages.items()}
    return situation(dataclasses.replace(found.observed, pages=read))


def test_a_pod_that_only_starts_does_not_hide_one_that_is_stuck() -> None:
    starting = PodStatus(ready=False, reason="RanksMissing", message="2 of 2 ranks are not connected: 0, 1")
    stuck = PodStatus(ready=False, reason="EngineStalled", message="no step for 20 s")
    found = decide(paged(a=starting, b=stuck, c=PodStatus(ready=True)))
    for name in ("Ready", "GuidedDecoding"):
        assert (found[name].reason, found[name].message) == ("EngineStalled", "pod b: no step for 20 s")


@pytest.mark.parametrize("ready", [True, False])
def test_a_spent_restart_budget_tells_the_last_failure(*, ready: bool) -> None:
    failure = Failure(code="grammar_compile_crashed", message="signal 11", time="2026-11-21T12:00:00Z")
    why = "" if ready else "new grammars are refused"
    page = PodStatus(
        ready=ready,
        reason=why and "GrammarsPending",
        message=why,
        exhausted="new grammars are refused",
        last_failure=failure,
    )
    message = decide(paged(a=page))["GuidedDecoding"].message
    assert message == "pod a: new grammars are refused; last failure: grammar_compile_crashed: signal 11"
    long_ago = msgspec.structs.replace(page, exhausted="", ready=False, message="x")
    assert decide(paged(a=long_ago))["GuidedDecoding"].message == "pod a: x"


def test_what_is_said_of_pods_is_what_there_is() -> None:
    assert (
        decide(serving(pod("a", OLD)))["GuidedDecoding"].message
        == "no pod of the current revision exists yet, 1 of older ones"
    )
    assert decide(serving())["GuidedDecoding"].message == "there are no pods"

    assert decide(serving())["GuidedDecoding"].message == "there are no pods"


def test_unsupported_image_leaves_what_is_said_of_the_pods_that_run() -> None:
    raw = model()
    raw["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.1.0"
    found = serving(pod("a", NEW))
    edited = situation(dataclasses.replace(found.observed, model=raw))
    assert decide(edited)["Compatible"].status == "False"
    assert decide(edited)["GuidedDecoding"] == decide(found)["GuidedDecoding"]
    assert decide(edited)["GuidedDecoding"].status == "True"
