"""Readiness and rollout as they are told: why a model is not ready, and how far a change has got."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from guided_contract import wire
from guided_operator.kube.pod_view import ContainerView, view
from guided_operator.reconcile import event_recorder
from guided_operator.reconcile.apply import Fault, Outcome
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.reconcile.report import make_status, to_object
from support.kstatus import kstatus
from support.observed import (
    applied,
    model,
    pod,
    reason,
    revision_of,
    seen,
    serving,
    situation,
    with_deployment,
)

NEW = revision_of()
OLD = "0ld0ld0ld0"
NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)


def container(**state: Any) -> ContainerView:
    """Return the engine's container as the kubelet tells of it."""
    metadata = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    told = {"containerStatuses": [{"name": "engine", "restartCount": 1, **state}]}
    [found] = view({"metadata": metadata, "spec": {}, "status": told}).containers
    return found


def crashed(code: int, why: str = "Error", last_words: str = "") -> ContainerView:
    ended = {"terminated": {"exitCode": code, "reason": why, "message": last_words}}
    return container(
        state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, lastState=ended
    )


def waiting(why: str) -> ContainerView:
    return container(restartCount=0, state={"waiting": {"reason": why, "message": f"because of {why}"}})


STARTING = container(restartCount=0, state={"running": {"startedAt": None}}, started=False)


def lame(*containers: ContainerView, **page: Any) -> Situation:
    """Return the situation of a model whose only pod is not ready, with these containers and this page."""
    return serving(pod("a", NEW, ready=False, containers=containers), **page)


def died(last_words: str) -> Situation:
    return lame(crashed(1, "Error", last_words))


FAILED_PATCH = wire.Patch(name="detach", state="Failed", reason="no such class")
READY = [
    pytest.param(serving(pod("a", NEW)), ("True", "PodsReady"), id="as many ready as desired"),
    pytest.param(serving(), ("False", "PodsNotReady"), id="no pod yet"),
    pytest.param(serving(pod("a", NEW, ready=False)), ("False", "PodsNotReady"), id="not ready yet"),
    pytest.param(
        serving(pod("a", NEW), pod("b", OLD)), ("False", "PodsNotReady"), id="an old pod is still there"
    ),
    pytest.param(
        serving(pod("a", NEW), pod("b", OLD, terminating=True)),
        ("True", "PodsReady"),
        id="an old pod that terminates is not live",
    ),
    pytest.param(
        serving(pod("a", NEW, terminating=True)), ("False", "PodsNotReady"), id="ready but terminating"
    ),
    pytest.param(serving(pod("a", OLD)), ("False", "PodsNotReady"), id="only the old revision is ready"),
    pytest.param(
        serving(pod("a", NEW, ready=False, phase="Pending", unschedulable="no GPU left")),
        ("False", "Unschedulable"),
        id="unschedulable",
    ),
    *(
        pytest.param(found, ("False", reason), id=why)
        for why, reason, found in (
            ("crash", "ContainerCrashed", lame(crashed(139))),
            ("image", "ImagePullFailed", lame(waiting("ImagePullBackOff"))),
            ("no Secret", "CreateContainerConfigError", lame(waiting("CreateContainerConfigError"))),
            ("out of memory", "OutOfMemory", lame(crashed(137, "OOMKilled"))),
            ("out of the GPU's memory", "OutOfMemory", died("torch.OutOfMemoryError: CUDA out of")),
            ("model download", "ModelDownloadFailed", died("GatedRepoError: 401 Client Error")),
            ("a setting of vLLM", "RefusedAtStart", died("the engine did not start: ValueError: x")),
            ("engine is starting", "EngineStarting", lame(STARTING, ready=False, reason="PluginInactive")),
            ("volumes are mounted", "ContainerCreating", lame(waiting("ContainerCreating"))),
            (
                "grammar compile",
                "GrammarsPending",
                lame(ready=False, reason="GrammarsPending", message="1 of 2"),
            ),
            ("probe", "ProbeFailed", lame(ready=False, reason="ProbeFailed", message="HTTP 500")),
            (
                "plugin incompatible",
                "PluginIncompatible",
                lame(ready=False, reason="PluginInactive", unsupported="vLLM 0.1"),
            ),
            (
                "change to vLLM failed",
                "PluginIncompatible",
                lame(STARTING, ready=False, reason="PluginInactive", patches=[FAILED_PATCH]),
            ),
        )
    ),
    pytest.param(
        serving(pod("a", OLD), raw=model(rollout={"paused": True})), ("False", "Paused"), id="paused"
    ),
    pytest.param(serving(raw=model(replicas=0)), ("False", "ScaledToZero"), id="zero desired"),
    pytest.param(situation(seen()), ("False", "Creating"), id="nothing there yet"),
]


@pytest.mark.parametrize(("found", "expected"), READY)
def test_ready(found: Situation, expected: tuple[str, str]) -> None:
    assert reason(found, "Ready") == expected


@pytest.mark.parametrize("replicas", [0, 1])
def test_scaling_down_is_complete_when_no_pod_is_left_over(replicas: int) -> None:
    found = serving(pod("a", NEW), pod("b", NEW), raw=model(replicas=replicas))
    assert reason(found, "Progressing") == ("True", "RollingOut")
    assert reason(found, "Ready")[0] == ("True" if replicas else "False"), "those that stay serve meanwhile"


def test_ready_waits_for_the_deployments_controller() -> None:
    found = serving(pod("a", NEW))
    stale = {"name": "m", "generation": 2}
    assert reason(with_deployment(found, metadata=stale), "Ready") == ("False", "Progressing")


def test_write_of_this_pass_counts_before_what_was_seen() -> None:
    found = serving(pod("a", NEW))
    written = {"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}
    outcome = Outcome(live={("Deployment", "m"): written})
    assert reason(dataclasses.replace(found, outcome=outcome), "Ready") == ("False", "Progressing")


def test_exit_code_and_image_message_reach_the_user() -> None:
    assert "exit code 139" in decide(lame(crashed(139)))["Ready"].message
    assert "because of ErrImagePull" in decide(lame(waiting("ErrImagePull")))["Ready"].message


def test_the_termination_message_reaches_the_user() -> None:
    log = (
        "INFO loading\nTraceback (most recent call last):\n  raise ValueError\nValueError: an error of ours\n"
    )
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": log}}
    again = container(state={"running": {"startedAt": None}}, started=False, lastState=ended)
    assert again.starting
    assert decide(lame(again))["Ready"].message == (
        "pod a: container engine ended with exit code 1 and was restarted 1 times; "
        "last output: raise ValueError / ValueError: an error of ours"
    )


def test_progressing_ends_by_completion_or_deadline() -> None:
    assert reason(serving(pod("a", NEW)), "Progressing") == ("False", "Complete")
    assert reason(serving(pod("a", NEW, ready=False)), "Progressing") == ("True", "RollingOut")
    deadline = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    stuck = with_deployment(
        serving(pod("a", NEW, ready=False)), status={"observedGeneration": 1, "conditions": [deadline]}
    )
    assert reason(stuck, "Progressing") == ("False", "ProgressDeadlineExceeded")


def test_deadline_of_the_spec_before_says_nothing_of_this_one() -> None:
    deadline = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    found = serving(pod("a", NEW, ready=False))
    stale = {"name": "m", "generation": 2}
    late = {"observedGeneration": 1, "conditions": [deadline]}
    assert reason(with_deployment(found, metadata=stale, status=late), "Progressing") == (
        "True",
        "RollingOut",
    )


def test_progressing_says_what_a_rollout_of_one_replica_means() -> None:
    def message(**rollout: Any) -> str:
        again = applied(dataclasses.replace(applied(seen()), model=model(rollout=rollout)))
        return decide(situation(again))["Progressing"].message

    price = "no pod may serve until a new one is ready"
    assert price in message(restartToken="1")
    assert price not in message(restartToken="1", maxSurge=1, maxUnavailable=0)
    assert price not in decide(serving())["Progressing"].message, "a model's first pods replace none"


def overdue() -> Situation:
    deadline = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    late = {"observedGeneration": 1, "conditions": [deadline]}
    return with_deployment(serving(pod("a", NEW, ready=False)), status=late)


def refused() -> Situation:
    invalid = model()
    invalid["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.1.0"
    return situation(seen(invalid))


def conflicting() -> Situation:
    return dataclasses.replace(serving(), outcome=Outcome((Fault("NameConflict", "Service m exists"),)))


def blind() -> Situation:
    found = serving(pod("a", NEW))
    return dataclasses.replace(found, observed=dataclasses.replace(found.observed, blind={"Pod": "no right"}))


PAUSED = model(rollout={"paused": True})


@pytest.mark.parametrize(
    ("found", "waits_for", "warning"),
    [
        pytest.param(serving(pod("a", NEW)), "Current", [], id="ready"),
        pytest.param(serving(pod("a", NEW, ready=False)), "InProgress", [], id="starting"),
        pytest.param(serving(raw=model(replicas=0)), "InProgress", [], id="scaled to zero"),
        pytest.param(serving(pod("a", OLD), raw=PAUSED), "InProgress", [], id="paused"),
        pytest.param(overdue(), "InProgress", ["ProgressDeadlineExceeded"], id="overdue"),
        pytest.param(refused(), "InProgress", ["Incompatible"], id="a spec that cannot be run"),
        pytest.param(conflicting(), "InProgress", ["NameConflict"], id="a child that is refused"),
        pytest.param(blind(), "InProgress", [], id="what a metric says once for all models"),
    ],
)
def test_gitops_tools_wait_for_ready_and_an_event_says_that_waiting_does_not_help(
    found: Situation, waits_for: str, warning: list[str]
) -> None:
    status, warned = make_status(found, NOW), list[str]()
    assert kstatus({**found.observed.model, "status": to_object(status)}) == waits_for
    event_recorder.record(lambda _model, why, _message: warned.append(why), {}, {}, status.conditions)
    assert warned == warning


def test_rollback_and_pause_are_told_as_such() -> None:
    held = applied(dataclasses.replace(applied(seen()), model=model(rollout={"restartToken": "1"})))
    raw = model(rollout={"restartToken": "1", "rollbackTo": NEW})
    found = situation(dataclasses.replace(held, model=raw, pods=(pod("a", NEW),)))
    assert reason(found, "Progressing") == ("False", "RolledBack")
    assert NEW in decide(found)["Progressing"].message
    assert reason(found, "Ready") == ("True", "PodsReady")
    paused = serving(pod("a", OLD), raw=model(rollout={"paused": True}))
    assert reason(paused, "Progressing") == ("False", "Paused")


def test_refused_pods_are_told_though_there_is_none() -> None:
    quota = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}
    found = with_deployment(serving(), status={"observedGeneration": 1, "conditions": [quota]})
    assert reason(found, "Ready") == ("False", "PodsRefused")
