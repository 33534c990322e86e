"""Pods as the operator sees them: what it keeps of each."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from guided_contract import names

Object = dict[str, Any]
_MAX_TERMINATION_CHARS: Final = 600
_MAX_LINE_CHARS: Final = 450  # of a line's beginning, which says what it is
_ERROR_LINE: Final = re.compile(r"[Ee]rror|ERROR|[Ee]xception|[Kk]illed|[Ff]atal|FATAL|[Pp]anic")


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container's state.

    `exit_code`, `exit_reason` and `termination_message` are of its last end; the code is None where it never
    ended. `starting`: it runs, and its startup probe has not passed yet.
    """

    name: str
    restarts: int
    waiting_reason: str
    waiting_message: str
    exit_code: int | None
    exit_reason: str
    termination_message: str = ""
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
    node: int  # its place in the group, 0 is the one that serves; -1: its label is no number
    nodes: int  # how many pods its group has
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
        node=_number(labels.get(names.LABEL_NODE, "0")),
        nodes=_number(metadata.get("annotations", {}).get(names.ANNOTATION_NODES, "1")),
        ip=status.get("podIP", ""),
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        terminating="deletionTimestamp" in metadata,
        unschedulable=scheduled.get("message", "") if refused and not assigned else "",
        containers=tuple(_container(item) for item in statuses),
        image=next((_image(item) for item in statuses if item["name"] == names.ENGINE_CONTAINER), ""),
    )


def _number(label: str) -> int:
    return int(label) if label.isascii() and label.isdecimal() else -1


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
        termination_message=_last_errors(ended.get("message", "")),
        starting="running" in state and status.get("started") is False,
    )


def _last_errors(log: str) -> str:
    """Return the lines of a log's end that say most: the last errors, or else the last lines."""
    lines = [stripped[:_MAX_LINE_CHARS] for line in log.splitlines() if (stripped := line.strip())]
    errors = [line for line in lines if _ERROR_LINE.search(line)]
    return " / ".join((errors or lines)[-3:])[-_MAX_TERMINATION_CHARS:]


def leaders(pods: Iterable[PodView]) -> int:
    """Return how many replicas these pods are, ready or not."""
    return sum(pod.node == 0 for pod in pods)


def ready_replicas(pods: Iterable[PodView]) -> int:
    """Return how many replicas are ready: all of their pods are."""
    ready = Counter((pod.group, pod.nodes) for pod in pods if pod.ready)
    return sum(count == nodes for (_, nodes), count in ready.items())
