"""Pods as the operator sees them, and what their own status says of why they are not ready."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from guided_contract import names

Object = dict[str, Any]
# A kubelet's or scheduler's message can hold whole stack traces; a condition is read on one screen.
MAX_MESSAGE_CHARS: Final = 800
_MAX_WORDS_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container's state.

    `exit_code`, `exit_reason` and `last_words` are of its last end; the code is None where it never ended.
    `starting`: it runs, and its startup probe has not passed yet.
    """

    name: str
    restarts: int
    waiting_reason: str
    waiting_message: str
    exit_code: int | None
    exit_reason: str
    last_words: str = ""
    starting: bool = False


@dataclass(frozen=True, slots=True)
class PodView:
    """What the operator uses of a pod."""

    name: str
    namespace: str
    uid: str
    version: str  # resourceVersion: differs after every change
    revision: str  # of the template it was made from
    group: str  # of pods over several nodes that are one replica; else its own name
    node: int  # its place in the group, 0 is the one that serves
    ip: str
    phase: str
    ready: bool
    terminating: bool
    unschedulable: str  # the scheduler's message, "" if scheduled or not tried yet
    containers: tuple[ContainerView, ...]
    image: str = ""  # of the engine, with the digest that the node found; "" if not pulled yet

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
    labels = metadata.get("labels", {})
    scheduled = conditions.get("PodScheduled", {})
    # Once it has a node, what the scheduler said before may still stand there.
    refused, assigned = scheduled.get("reason") == "Unschedulable", bool(pod["spec"].get("nodeName"))
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return PodView(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        revision=labels.get(names.LABEL_REVISION, ""),
        group=labels.get(names.LABEL_GROUP, metadata["name"]),
        node=int(labels.get(names.LABEL_NODE, "0")),
        ip=status.get("podIP", ""),
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        terminating="deletionTimestamp" in metadata,
        unschedulable=scheduled.get("message", "") if refused and not assigned else "",
        containers=tuple(_container(item) for item in statuses),
        image=next((_image(item) for item in statuses if item["name"] == names.ENGINE_CONTAINER), ""),
    )


def _image(status: Object) -> str:
    found: str = status.get("imageID", "")
    return found.rpartition("://")[2] if "@" in found else ""


def _container(status: Object) -> ContainerView:
    state = status.get("state") or {}
    waiting = state.get("waiting") or {}
    ended = state.get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    return ContainerView(
        name=status["name"],
        restarts=status.get("restartCount", 0),
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        exit_code=ended.get("exitCode"),
        exit_reason=ended.get("reason", ""),
        last_words=_telling(ended.get("message", "")),
        starting="running" in state and status.get("started") is False,
    )


def _telling(log: str) -> str:
    """Return the lines of a log's end that say most: the last errors, or else the last lines."""
    lines = [stripped for line in log.splitlines() if (stripped := line.strip())]
    errors = [line for line in lines if _ERROR_LINE.search(line)]
    return " / ".join((errors or lines)[-3:])[-_MAX_WORDS_CHARS:]


def leaders(pods: Iterable[PodView]) -> int:
    """Return how many replicas these pods are, ready or not."""
    return sum(pod.node == 0 for pod in pods)


def ready_replicas(pods: Iterable[PodView], nodes: int) -> int:
    """Return how many replicas of so many pods are ready: all of their pods are."""
    return sum(count >= nodes for count in Counter(pod.group for pod in pods if pod.ready).values())


def replica_failure(deployment: dict[str, Any] | None) -> Trouble | None:
    """Return why pods cannot even be made (a quota, an admission policy), as the Deployment says."""
    for condition in (deployment or {}).get("status", {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return Trouble("PodsRefused", condition.get("message", ""))
    return None


def trouble(pods: Iterable[PodView]) -> Trouble | None:
    """Return the first thing that keeps one of the pods from being ready and needs a person, or None."""
    return _first(_TROUBLES, pods)


def waiting(pods: Iterable[PodView]) -> Trouble | None:
    """Return what one of the pods, in no trouble yet, waits for, or None."""
    return _first(_WAITS, pods)


def _first(checks: tuple["Check", ...], pods: Iterable[PodView]) -> Trouble | None:
    unready = sorted((pod for pod in pods if pod.live and not pod.ready), key=lambda pod: pod.name)
    for check in checks:
        for pod in unready:
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
            return Trouble(_cause(container), _obituary(container))
    return None


def _cause(container: ContainerView) -> str:
    if container.exit_reason == "OOMKilled":
        return "OutOfMemory"
    found = (reason for reason, words in _CAUSES if words.search(container.last_words))
    return next(found, "ContainerCrashed")


def _obituary(container: ContainerView) -> str:
    why = f", {container.exit_reason}" if container.exit_reason not in ("", "Error") else ""
    words = f"; last output: {container.last_words}" if container.last_words else ""
    return (
        f"container {container.name} ended with exit code {container.exit_code}{why}"
        f" and was restarted {container.restarts} times{words}"
    )


def _container_creating(pod: PodView) -> Trouble | None:
    for container in pod.containers:
        if container.waiting_reason == "ContainerCreating":
            # Which of these it is, and what keeps it, is in events alone.
            message = (
                f"container {container.name} is waiting for its image or volumes: see kubectl describe pod"
            )
            return Trouble("ContainerCreating", message)
    return None


def _engine_starting(pod: PodView) -> Trouble | None:
    for container in pod.containers:
        if container.name == names.ENGINE_CONTAINER and container.starting:
            return Trouble("EngineStarting", "the engine is downloading or loading its model")
    return None


Check = Callable[[PodView], Trouble | None]
_ERROR_LINE: Final = re.compile(r"[Ee]rror|ERROR|[Ee]xception|[Kk]illed|[Ff]atal|FATAL|[Pp]anic")
# What an engine's last words give away, as torch, vLLM and huggingface_hub put it.
_CAUSES: Final = (
    (
        "OutOfMemory",
        re.compile(
            r"OutOfMemoryError|out of memory|MemoryError|No available memory for the cache blocks|"
            r"less than desired (GPU|CPU) memory utilization|larger than the available KV cache memory"
        ),
    ),
    (
        "ModelDownloadFailed",
        re.compile(
            r"huggingface\.co|huggingface_hub|HfHubHTTPError|GatedRepo|RepositoryNotFound|RevisionNotFound|"
            r"LocalEntryNotFound|not a valid model identifier|[Nn]o space left on device"
        ),
    ),
)
_TROUBLES: Final[tuple[Check, ...]] = (_unschedulable, _image_missing, _container_unstartable, _crashed)
_WAITS: Final[tuple[Check, ...]] = (_container_creating, _engine_starting)
