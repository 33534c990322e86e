"""Why pods are not ready, as their own status says it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from guided_contract import names
from guided_operator.kube.pod_view import ContainerView, PodView
from guided_operator.reconcile.conditions.finding import Finding

# A kubelet's or scheduler's message can hold whole stack traces; a condition is read on one screen.
MAX_MESSAGE_CHARS: Final = 800
REFUSED: Final = "RefusedAtStart"  # what goes by the model, or the image, and is known only there
# What an engine's last words give away, as torch, vLLM and huggingface_hub put it.
_CAUSES: Final = {
    "OutOfMemory": re.compile(
        r"OutOfMemoryError|out of memory|MemoryError|No available memory for the cache blocks|"
        r"educe [CG]PU memory used by other processes|larger than the available KV cache memory"
    ),
    "ModelDownloadFailed": re.compile(
        r"huggingface\.co|huggingface_hub|HfHubHTTPError|GatedRepo|RepositoryNotFound|RevisionNotFound|"
        r"LocalEntryNotFound|not a valid model identifier|[Nn]o space left on device"
    ),
}
# What no engine that has started ends with: a rank's last words, and a configuration that vLLM cannot make.
_REFUSAL: Final = re.compile(
    names.NOT_STARTED + r"((Refused|Factory\w*|Value|NotImplemented)Error: |"
    # Torch's own are of this class, too: they say "CUDA error" and the like.
    r"RuntimeError: (?!.*[Ee]rror).*"
    r"(not( \w+)? support|[Uu]nsupported|requires |unavailable|could not profile))|"
    r"validation errors? for \w+Config"
)


def replica_failure(deployment: dict[str, Any] | None) -> Finding | None:
    """Return why pods cannot even be made (a quota, an admission policy), as the Deployment says."""
    for condition in (deployment or {}).get("status", {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return Finding("False", "PodsRefused", condition.get("message", ""))
    return None


def trouble(pods: Iterable[PodView]) -> Finding | None:
    """Return the first thing that keeps one of the pods from being ready and needs a person, or None."""
    return _first(pods, _unschedulable, _image_missing, _container_unstartable, _crashed)


def refusal(pods: Iterable[PodView]) -> Finding | None:
    """Return what one of the pods' engines refused to start with, whatever else keeps the pods, or None."""
    return _first(pods, _refused)


def waiting(pods: Iterable[PodView]) -> Finding | None:
    """Return what one of the pods, in no trouble yet, waits for, or None."""
    return _first(pods, _container_creating, _engine_starting)


def _first(pods: Iterable[PodView], *checks: Callable[[PodView], Finding | None]) -> Finding | None:
    """Return what the first check finds that finds something in one of the pods."""
    unready = sorted((pod for pod in pods if pod.live and not pod.ready), key=lambda pod: pod.name)
    for check in checks:
        for pod in unready:
            if found := check(pod):
                return replace(found, message=f"pod {pod.name}: {found.message}"[:MAX_MESSAGE_CHARS])
    return None


def _unschedulable(pod: PodView) -> Finding | None:
    return Finding("False", "Unschedulable", pod.unschedulable) if pod.unschedulable else None


def _image_missing(pod: PodView) -> Finding | None:
    found = _waits(pod, "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
    if found is None:
        return None
    why = found.waiting_message or found.waiting_reason
    return Finding("False", "ImagePullFailed", f"container {found.name}: {why}")


def _container_unstartable(pod: PodView) -> Finding | None:
    found = _waits(pod, "CreateContainerConfigError", "CreateContainerError", "RunContainerError")
    if found is None:
        return None
    return Finding("False", found.waiting_reason, f"container {found.name}: {found.waiting_message}")


def _waits(pod: PodView, *reasons: str) -> ContainerView | None:
    """Return the first container that waits for one of these reasons."""
    return next((each for each in pod.containers if each.waiting_reason in reasons), None)


def _crashed(pod: PodView) -> Finding | None:
    # The one that is down before one that ended some time ago and runs again.
    crashes = map(_crash, sorted(pod.containers, key=lambda each: not _is_down(each)))
    return next(filter(None, crashes), None)


def _refused(pod: PodView) -> Finding | None:
    crashes = filter(None, map(_crash, pod.containers))
    return next((crash for crash in crashes if crash.reason == REFUSED), None)


def _crash(container: ContainerView) -> Finding | None:
    ended = container.exit_code not in (None, 0)
    if _is_down(container) or (ended and container.restarts > 0):
        return Finding("False", _cause(container), _crash_message(container))
    return None


def _is_down(container: ContainerView) -> bool:
    return container.waiting_reason == "CrashLoopBackOff"


def _cause(container: ContainerView) -> str:
    if container.exit_reason == "OOMKilled":
        return "OutOfMemory"
    for reason, words in _CAUSES.items():
        if words.search(container.termination_message):
            return reason
    is_refusal = container.name == names.ENGINE_CONTAINER and _REFUSAL.search(container.termination_message)
    return REFUSED if is_refusal else "ContainerCrashed"


def _crash_message(container: ContainerView) -> str:
    why = f", {container.exit_reason}" if container.exit_reason not in ("", "Error") else ""
    output = f"; last output: {container.termination_message}" if container.termination_message else ""
    return (
        f"container {container.name} ended with exit code {container.exit_code}{why}"
        f" and was restarted {container.restarts} times{output}"
    )


def _container_creating(pod: PodView) -> Finding | None:
    found = _waits(pod, "ContainerCreating")
    if found is None:
        return None
    # Which of these it is, and what keeps it, is in events alone.
    message = f"container {found.name} is waiting for its image or volumes: see kubectl describe pod"
    return Finding("False", "ContainerCreating", message)


def _engine_starting(pod: PodView) -> Finding | None:
    if any(each.name == names.ENGINE_CONTAINER and each.starting for each in pod.containers):
        return Finding("False", "EngineStarting", "the engine is downloading or loading its model")
    return None
