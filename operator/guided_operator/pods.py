"""Pods as the operator sees them, and what their own status says of why they are not ready."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from guided_contract import names

Object = dict[str, Any]
# A kubelet's or scheduler's message can hold whole stack traces; a condition is read on one screen.
MAX_MESSAGE_CHARS: Final = 400


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container's state; `exit_code` is of its last end, None where it never ended."""

    name: str
    restarts: int
    waiting_reason: str
    waiting_message: str
    exit_code: int | None
    exit_reason: str


@dataclass(frozen=True, slots=True)
class PodView:
    """What the operator uses of a pod."""

    name: str
    namespace: str
    uid: str
    version: str  # resourceVersion: differs after every change
    revision: str  # of the template it was made from
    ip: str
    phase: str
    ready: bool
    terminating: bool
    unschedulable: str  # the scheduler's message, "" if scheduled or not tried yet
    containers: tuple[ContainerView, ...]

    @property
    def live(self) -> bool:
        """Whether it serves or is about to: not terminating, not ended."""
        return not self.terminating and self.phase not in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a pod is not ready, as a condition's reason and message."""

    reason: str
    message: str


def view(pod: Object) -> PodView:
    """Project a pod as the API server sends it."""
    metadata, status = pod["metadata"], pod.get("status", {})
    conditions = {item["type"]: item for item in status.get("conditions", ())}
    scheduled = conditions.get("PodScheduled", {})
    # Once it has a node, what the scheduler said before may still stand there.
    refused, assigned = scheduled.get("reason") == "Unschedulable", bool(pod["spec"].get("nodeName"))
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return PodView(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        revision=metadata.get("labels", {}).get(names.LABEL_REVISION, ""),
        ip=status.get("podIP", ""),
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        terminating="deletionTimestamp" in metadata,
        unschedulable=scheduled.get("message", "") if refused and not assigned else "",
        containers=tuple(_container(item) for item in statuses),
    )


def _container(status: Object) -> ContainerView:
    waiting = status.get("state", {}).get("waiting", {})
    ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated") or {}
    return ContainerView(
        name=status["name"],
        restarts=status.get("restartCount", 0),
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        exit_code=ended.get("exitCode"),
        exit_reason=ended.get("reason", ""),
    )


def replica_failure(deployment: dict[str, Any] | None) -> Trouble | None:
    """Return why pods cannot even be made (a quota, an admission policy), as the Deployment says."""
    for condition in (deployment or {}).get("status", {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return Trouble("PodsRefused", condition.get("message", ""))
    return None


def trouble(pods: Iterable[PodView]) -> Trouble | None:
    """Return the first thing that keeps one of the pods from being ready and needs a person, or None."""
    waiting = sorted((pod for pod in pods if pod.live and not pod.ready), key=lambda pod: pod.name)
    for check in _CHECKS:
        for pod in waiting:
            found = check(pod)
            if found is not None:
                return Trouble(found.reason, f"pod {pod.name}: {found.message}"[:MAX_MESSAGE_CHARS])
    return None


def _unschedulable(pod: PodView) -> Trouble | None:
    return Trouble("Unschedulable", pod.unschedulable) if pod.unschedulable else None


def _image_missing(pod: PodView) -> Trouble | None:
    for container in pod.containers:
        if container.waiting_reason in (
            "ErrImagePull",
            "ImagePullBackOff",
            "InvalidImageName",
            "ErrImageNeverPull",
        ):
            return Trouble(
                "ImagePullFailed",
                f"container {container.name}: {container.waiting_message or container.waiting_reason}",
            )
    return None


def _container_unstartable(pod: PodView) -> Trouble | None:
    for container in pod.containers:
        if container.waiting_reason in (
            "CreateContainerConfigError",
            "CreateContainerError",
            "RunContainerError",
        ):
            return Trouble(
                container.waiting_reason, f"container {container.name}: {container.waiting_message}"
            )
    return None


def _crashed(pod: PodView) -> Trouble | None:
    for container in pod.containers:
        ended = container.exit_code not in (None, 0)
        if container.waiting_reason == "CrashLoopBackOff" or (ended and container.restarts > 0):
            why = f", {container.exit_reason}" if container.exit_reason not in ("", "Error") else ""
            return Trouble(
                "ContainerCrashed",
                f"container {container.name} ended with exit code {container.exit_code}{why}"
                f" and was restarted {container.restarts} times",
            )
    return None


_CHECKS: Final[tuple[Callable[[PodView], Trouble | None], ...]] = (
    _unschedulable,
    _image_missing,
    _container_unstartable,
    _crashed,
)
