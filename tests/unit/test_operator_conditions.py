"""The conditions of a resource: what each says in which situation, and which pod its message names."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from guided_contract import status, wire
from guided_contract.status import Failure, PodStatus
from guided_operator.kube.pod_view import ContainerView, view
from guided_operator.reconcile import event_recorder
from guided_operator.reconcile.apply import Fault, Outcome
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.situation import Situation
from guided_operator.reconcile.report import make_status, to_object
from guided_operator.watch.sidecar_status import Page
from support.observed import (
    applied,
    model,
    pod,
    reason,
    revision_of,
    seen,
    serving,
    situation,
    telling,
    with_deployment,
)

NEW = revision_of()
OLD = "0ld0ld0ld0"
NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
PAUSED = model(rollout={"paused": True})


def container(name: str = "engine", **state: Any) -> ContainerView:
    """Return a container as the kubelet tells of it."""
    metadata = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    told = {"containerStatuses": [{"name": name, "restartCount": 1, **state}]}
    [found] = view({"metadata": metadata, "spec": {}, "status": told}).containers
    return found


def crashed(code: int, why: str = "Error", last_words: str = "", name: str = "engine") -> ContainerView:
    ended = {"terminated": {"exitCode": code, "reason": why, "message": last_words}}
    back_off = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    return container(name, state=back_off, lastState=ended)


def waiting(why: str, name: str = "engine") -> ContainerView:
    state = {"waiting": {"reason": why, "message": f"because of {why}"}}
    return container(name, restartCount=0, state=state)


STARTING = container(restartCount=0, state={"running": {"startedAt": None}}, started=False)


def lame(*containers: ContainerView, **page: Any) -> Situation:
    """Return the situation of a model whose only pod is not ready, with these containers and this page."""
    return serving(pod("a", NEW, ready=False, containers=containers), **page)


def held_back(why: str, **page: Any) -> Situation:
    return lame(ready=False, reason=why, **page)


def with_outcome(found: Situation, outcome: Outcome) -> Situation:
    return dataclasses.replace(found, outcome=outcome)


def with_observed(found: Situation, **changes: Any) -> Situation:
    return dataclasses.replace(found, observed=dataclasses.replace(found.observed, **changes))


def invalid(**observed: Any) -> Situation:
    """Return the situation of a model that ran and whose spec cannot be run any more."""
    raw = model()
    raw["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.1.0"
    return situation(dataclasses.replace(applied(seen()), model=raw, **observed))


def told_by_the_deployment(condition: str, status: str, why: str, *, generation: int = 1) -> Situation:
    said = {"type": condition, "status": status, "reason": why, "message": "exceeded quota"}
    return with_deployment(
        lame(), metadata={"generation": generation}, status={"observedGeneration": 1, "conditions": [said]}
    )


def rolled_back() -> Situation:
    held = applied(dataclasses.replace(applied(seen()), model=model(rollout={"restartToken": "1"})))
    raw = model(rollout={"restartToken": "1", "rollbackTo": NEW})
    return situation(dataclasses.replace(held, model=raw, pods=(pod("a", NEW),)))


SERVING = serving(pod("a", NEW))
OVERDUE = told_by_the_deployment("Progressing", "False", "ProgressDeadlineExceeded")
CONFLICT = Outcome((Fault("NameConflict", "Service m exists"),))
BLIND = with_observed(SERVING, blind={"Pod": "no right to list pods"})
WRITTEN = {"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}
FAILED_PATCH = wire.Patch(name="detach", state="Failed", reason="no such class")
UNMEASURED = status.LibraryStatus(name="llguidance", version="1.7.9", measured="1.7.6")
SILENT = with_observed(SERVING, pages={"uid-a": Page(None, "no answer")})
BY_VLLM = model(guidedDecoding={"placement": "Scheduler"})
YES, NO, DARK = "True", "False", "Unknown"

SAID = {
    "Ready": [
        (SERVING, YES, "PodsReady"),
        (serving(), NO, "PodsNotReady"),
        (lame(), NO, "PodsNotReady"),
        # Pods of an older revision count until they terminate.
        (serving(pod("a", NEW), pod("b", OLD)), NO, "PodsNotReady"),
        (serving(pod("a", NEW), pod("b", OLD, terminating=True)), YES, "PodsReady"),
        (serving(pod("a", NEW, terminating=True)), NO, "PodsNotReady"),
        (serving(pod("a", OLD)), NO, "PodsNotReady"),
        # What keeps a pod.
        (
            serving(pod("a", NEW, ready=False, phase="Pending", unschedulable="no GPU left")),
            NO,
            "Unschedulable",
        ),
        (lame(crashed(139)), NO, "ContainerCrashed"),
        (lame(crashed(137, "OOMKilled")), NO, "OutOfMemory"),
        (lame(crashed(1, last_words="torch.OutOfMemoryError: CUDA out of")), NO, "OutOfMemory"),
        (lame(crashed(1, last_words="GatedRepoError: 401 Client Error")), NO, "ModelDownloadFailed"),
        (lame(crashed(1, last_words="the engine did not start: ValueError: x")), NO, "RefusedAtStart"),
        (lame(waiting("ImagePullBackOff")), NO, "ImagePullFailed"),
        (lame(waiting("CreateContainerConfigError")), NO, "CreateContainerConfigError"),
        (lame(waiting("ContainerCreating")), NO, "ContainerCreating"),
        (lame(STARTING, ready=False, reason="PluginInactive"), NO, "EngineStarting"),
        (held_back("GrammarsPending", message="1 of 2"), NO, "GrammarsPending"),
        (held_back("ProbeFailed", message="HTTP 500"), NO, "ProbeFailed"),
        (held_back("PluginInactive", unsupported="vLLM 0.1"), NO, "PluginIncompatible"),
        (held_back("PluginInactive", patches=[FAILED_PATCH]), NO, "PluginIncompatible"),
        # What the Deployment's controller has to say, and what it has not seen yet.
        (told_by_the_deployment("ReplicaFailure", "True", "FailedCreate"), NO, "PodsRefused"),
        (with_deployment(SERVING, metadata={"name": "m", "generation": 2}), NO, "Progressing"),
        (with_outcome(SERVING, Outcome(live={("Deployment", "m"): WRITTEN})), NO, "Progressing"),
        # What is the matter with the resource itself comes before its pods.
        (with_outcome(SERVING, CONFLICT), NO, "NameConflict"),
        (BLIND, DARK, "Forbidden"),
        (invalid(pods=(pod("a", NEW),)), NO, "Incompatible"),
        (serving(pod("a", OLD), raw=PAUSED), NO, "Paused"),
        (serving(raw=model(replicas=0)), NO, "ScaledToZero"),
        (situation(seen()), NO, "Creating"),
        (rolled_back(), YES, "PodsReady"),
    ],
    "Available": [
        (SERVING, YES, "SomePodsReady"),
        (lame(), NO, "NoReadyPods"),
        (invalid(pods=(pod("a", NEW),)), YES, "SomePodsReady"),
        (invalid(), NO, "Incompatible"),
    ],
    "Progressing": [
        (SERVING, NO, "Complete"),
        (lame(), YES, "RollingOut"),
        (serving(pod("a", NEW), pod("b", NEW)), YES, "RollingOut"),  # one of them is to go
        (OVERDUE, NO, "ProgressDeadlineExceeded"),
        # A deadline of the spec before says nothing of this one.
        (
            told_by_the_deployment("Progressing", "False", "ProgressDeadlineExceeded", generation=2),
            YES,
            "RollingOut",
        ),
        (rolled_back(), NO, "RolledBack"),
        (serving(pod("a", OLD), raw=PAUSED), NO, "Paused"),
    ],
    "Compatible": [(SERVING, YES, "Supported"), (invalid(), NO, "Invalid")],
    "GuidedDecoding": [
        (SERVING, YES, "Active"),
        (serving(), DARK, "Pending"),
        (SILENT, DARK, "SidecarUnreachable"),
        (invalid(pods=(pod("a", NEW),), pages=SERVING.observed.pages), YES, "Active"),  # of those that run
        (serving(pod("a", NEW), unsupported="vLLM 0.1"), NO, "PluginInactive"),
        (held_back("ProbeFailed"), NO, "ProbeFailed"),
        (held_back("TokenizersDiffer"), NO, "TokenizersDiffer"),
        (held_back("Draining"), NO, "Draining"),
        (held_back("x y"), NO, "NotReady"),  # a reason of nobody's
        (serving(pod("a", NEW), unmeasured=[UNMEASURED]), YES, "LibrariesUnmeasured"),
        (serving(pod("a", NEW), desync="rank 1"), NO, "Desync"),
        (serving(pod("a", NEW), exhausted="x"), NO, "ServiceExhausted"),
        (held_back("EngineStalled", desync="rank 1"), NO, "EngineStalled"),  # the worse first
        (serving(pod("a", NEW), raw=BY_VLLM), NO, "SchedulerPlacement"),
    ],
}


@pytest.mark.parametrize(
    ("condition", "found", "expected"),
    [
        pytest.param(condition, found, (value, why), id=f"{condition}-{number}-{why}")
        for condition, rows in SAID.items()
        for number, (found, value, why) in enumerate(rows)
    ],
)
def test_a_condition_says_what_is_the_matter(
    condition: str, found: Situation, expected: tuple[str, str]
) -> None:
    assert reason(found, condition) == expected


@pytest.mark.parametrize(
    ("containers", "failed"),
    [
        ((crashed(1, name="plugin"),), "plugin"),
        ((crashed(1, name="plugin"), crashed(139, name="sidecar")), "plugin"),
        # The one that is down, not the one that runs again.
        (
            (
                container("sidecar", lastState={"terminated": {"exitCode": 139, "reason": "Error"}}),
                crashed(1),
            ),
            "engine",
        ),
        ((waiting("ImagePullBackOff", "sidecar"), waiting("PodInitializing")), "sidecar"),
    ],
)
def test_a_pod_names_the_container_that_failed(containers: tuple[ContainerView, ...], failed: str) -> None:
    assert decide(lame(*containers))["Ready"].message.startswith(f"pod a: container {failed}")


def test_exit_code_image_and_last_words_reach_the_user() -> None:
    assert "exit code 139" in decide(lame(crashed(139)))["Ready"].message
    assert "because of ErrImagePull" in decide(lame(waiting("ErrImagePull")))["Ready"].message
    log = (
        "INFO loading\nTraceback (most recent call last):\n  raise ValueError\nValueError: an error of ours\n"
    )
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": log}}
    again = container(state={"running": {"startedAt": None}}, started=False, lastState=ended)
    assert decide(lame(again))["Ready"].message == (
        "pod a: container engine ended with exit code 1 and was restarted 1 times; "
        "last output: raise ValueError / ValueError: an error of ours"
    )


def test_a_pod_that_only_starts_does_not_hide_one_that_is_stuck() -> None:
    starting = PodStatus(ready=False, reason="RanksMissing", message="2 of 2 ranks are not connected: 0, 1")
    stuck = PodStatus(ready=False, reason="EngineStalled", message="no step for 20 s")
    found = decide(telling(starting, stuck, PodStatus(ready=True), raw=model(replicas=3)))
    for name in ("Ready", "GuidedDecoding"):
        assert (found[name].reason, found[name].message) == ("EngineStalled", "pod m-1: no step for 20 s")


def test_a_spent_restart_budget_tells_the_last_failure() -> None:
    failure = Failure(code="grammar_compile_crashed", message="signal 11", time="2026-11-21T12:00:00Z")
    page = PodStatus(ready=True, exhausted="new grammars are refused", last_failure=failure)
    message = decide(telling(page))["GuidedDecoding"].message
    assert message == "pod m-0: new grammars are refused; last failure: grammar_compile_crashed: signal 11"


def test_progressing_says_what_a_rollout_of_one_replica_means() -> None:
    def message(**rollout: Any) -> str:
        again = applied(dataclasses.replace(applied(seen()), model=model(rollout=rollout)))
        return decide(situation(again))["Progressing"].message

    price = "no pod may serve until a new one is ready"
    assert price in message(restartToken="1")
    assert price not in message(restartToken="1", maxSurge=1, maxUnavailable=0)
    assert price not in decide(serving())["Progressing"].message, "a model's first pods replace none"


def kstatus(item: dict[str, Any]) -> str:
    """Return what Flux and Helm 4 make of it, by fluxcd/cli-utils' pkg/kstatus."""
    status = item["status"]
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    if "deletionTimestamp" in item["metadata"]:
        return "Terminating"
    if status["observedGeneration"] != item["metadata"]["generation"] or conditions.get("Reconciling") == YES:
        return "InProgress"
    if conditions.get("Stalled") == YES:
        return "Failed"
    return "Current" if conditions.get("Ready", YES) == YES else "InProgress"


@pytest.mark.parametrize(
    ("found", "waits_for", "warning"),
    [
        pytest.param(SERVING, "Current", [], id="ready"),
        pytest.param(lame(), "InProgress", [], id="starting"),
        pytest.param(serving(raw=model(replicas=0)), "InProgress", [], id="scaled to zero"),
        pytest.param(serving(pod("a", OLD), raw=PAUSED), "InProgress", [], id="paused"),
        pytest.param(OVERDUE, "InProgress", ["ProgressDeadlineExceeded"], id="overdue"),
        pytest.param(invalid(), "InProgress", ["Incompatible"], id="a spec that cannot be run"),
        pytest.param(
            with_outcome(SERVING, CONFLICT), "InProgress", ["NameConflict"], id="a child that is refused"
        ),
        pytest.param(BLIND, "InProgress", [], id="what a metric says once for all models"),
    ],
)
def test_gitops_tools_wait_for_ready_and_an_event_says_that_waiting_does_not_help(
    found: Situation, waits_for: str, warning: list[str]
) -> None:
    told, warned = make_status(found, NOW), list[str]()
    assert kstatus({**found.observed.model, "status": to_object(told)}) == waits_for
    event_recorder.record(lambda _model, why, _message: warned.append(why), {}, {}, told.conditions)
    assert warned == warning
