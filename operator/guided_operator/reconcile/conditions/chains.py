"""The conditions of a GuidedModel: one chain of checks each; a check is named after the problem it finds.

A chain's first check that finds something decides; its last one always does.
"""

from collections.abc import Iterator
from typing import Final

from guided_contract.status import NotReadyReason, PodStatus
from guided_operator.api.combinations import remarks
from guided_operator.kube import kinds
from guided_operator.kube.pod_view import PodView
from guided_operator.reconcile.conditions.auxiliary_resources import AUXILIARY_RESOURCES
from guided_operator.reconcile.conditions.checks import (
    Check,
    absent,
    faulty,
    first,
    held_back,
    incompatible,
    reported,
    unseen,
)
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.guided_decoding import GUIDED_DECODING
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.reconcile.conditions.pod_trouble import refusal
from guided_operator.reconcile.conditions.progress_deadline import OVERDUE


def decide(situation: Situation) -> dict[str, Finding]:
    """Return the finding of every condition type."""
    return {name: first(checks, situation) for name, checks in _CHAINS.items()}


def _spec_invalid(situation: Situation) -> Finding | None:
    problems = situation.plan.problems
    return Finding("False", "Invalid", "; ".join(map(str, problems))) if problems else None


def _vllm_unsupported(situation: Situation) -> Finding | None:
    return reported(situation, "UnsupportedVLLM", lambda page: page.unsupported)


def _refused_at_start(situation: Situation) -> Finding | None:
    return refusal(situation.current)


def _child_faulty(situation: Situation) -> Finding | None:
    return faulty(fault for fault in situation.outcome.faults if not fault.auxiliary)


def _kind_unseen(situation: Situation) -> Finding | None:
    used = {kinds.POD, *(kind for kind in situation.planned if not kind.auxiliary)}
    return unseen(situation, [kind.name for kind in used])


def _api_absent(situation: Situation) -> Finding | None:
    return absent(kind for kind in situation.absent if not kind.auxiliary)


def _none_desired(situation: Situation) -> Finding | None:
    return Finding("False", "ScaledToZero", "replicas is 0") if situation.plan.desired == 0 else None


def _none_desired_nor_left(situation: Situation) -> Finding | None:
    return _none_desired(situation) if not situation.live else None


def _workload_unseen(situation: Situation) -> Finding | None:
    workload, (kind, _) = situation.workload, situation.workload_name
    if workload is None:
        return Finding("False", "Creating", f"the {kind} is being created")
    seen = workload.get("status", {}).get("observedGeneration", 0)
    if seen < workload["metadata"]["generation"]:
        return Finding(
            "False",
            "Progressing",
            f"the last change of the {kind} has not been observed by its controller yet",
        )
    return None


def _pods_ready(situation: Situation) -> Finding | None:
    return Finding("True", "PodsReady", situation.progress) if situation.is_complete else None


def _pods_in_trouble(situation: Situation) -> Finding | None:
    return situation.trouble


def _plugin_incompatible(situation: Situation) -> Finding | None:
    """Find a vLLM that the launcher left untouched, or a change to it that could not be made."""
    for pod, page in _unready(situation):
        failed = [f"{patch.name} ({patch.reason})" for patch in page.patches if patch.state == "Failed"]
        message = page.unsupported or f"changes to vLLM failed: {', '.join(failed)}" * bool(failed)
        if message:
            return Finding("False", "PluginIncompatible", f"pod {pod.name}: {message}")
    return None


def _pods_waiting(situation: Situation) -> Finding | None:
    return situation.waiting


def _sidecar_holds_back(situation: Situation) -> Finding | None:
    found = held_back(_unready(situation))
    return None if found is None or found.reason == NotReadyReason.NOT_READY else found


def _unready(situation: Situation) -> Iterator[tuple[PodView, PodStatus]]:
    return ((pod, page) for pod, page in situation.pages if not pod.ready)


def _pods_not_ready(situation: Situation) -> Finding:
    return Finding("False", "PodsNotReady", situation.progress)


def _some_pod_ready(situation: Situation) -> Finding | None:
    ready = any(pod.ready and pod.node == 0 for pod in situation.live)  # the others of a group have no API
    return Finding("True", "SomePodsReady", "at least one pod serves requests") if ready else None


def _rollout_paused(situation: Situation) -> Finding | None:
    paused = situation.rollout.paused
    return Finding("False", "Paused", f"rollout.paused is true; {situation.progress}") if paused else None


def _rollout_stalled(situation: Situation) -> Finding | None:
    if _workload_unseen(situation):  # what it says is of what was asked for before
        return None
    conditions = (situation.workload or {}).get("status", {}).get("conditions", ())
    told = any(each["type"] == "Progressing" and each.get("reason") == OVERDUE for each in conditions)
    cause = f": {situation.trouble.message}" if situation.trouble else ""
    overdue = situation.overdue or told
    return Finding("False", OVERDUE, situation.progress + cause) if overdue else None


def _rollout_complete(situation: Situation) -> Finding | None:
    if _workload_unseen(situation) is not None or _pods_ready(situation) is None:
        return None
    plan = situation.plan
    if len(situation.live) > plan.desired:
        return None
    if plan.revision == plan.asked:
        return Finding("False", "Complete", situation.progress)
    held = f"rollout.rollbackTo keeps revision {plan.revision}; the spec's revision is {plan.asked}"
    return Finding("False", "RolledBack", f"{situation.progress}; {held}")


def _rolling_out(situation: Situation) -> Finding:
    price = _INTERRUPTION if situation.interrupts else ""
    return Finding("True", "RollingOut", situation.progress + price)


def _compatible(situation: Situation) -> Finding:
    facts = situation.facts
    return Finding("True", "Supported", "; ".join(remarks(facts)) if facts is not None else "")


def _no_pod_ready(situation: Situation) -> Finding:
    return Finding("False", "NoReadyPods", situation.progress)


# What a rollout costs where maxUnavailable is all of the replicas, as it is by default with one.
_INTERRUPTION: Final = (
    "; rollout.maxUnavailable lets all old pods stop first, so no pod may serve until a new one "
    "is ready; if there is room for one more pod, maxSurge 1 with maxUnavailable 0 avoids this"
)
_BLOCKED: Final[tuple[Check, ...]] = (incompatible, _child_faulty, _kind_unseen, _api_absent)
_CHAINS: Final[dict[str, tuple[Check, ...]]] = {
    "Ready": (
        *_BLOCKED,
        _none_desired,
        _workload_unseen,
        _pods_ready,
        _pods_in_trouble,
        _plugin_incompatible,
        _pods_waiting,
        _sidecar_holds_back,
        _rollout_paused,
        _pods_not_ready,
    ),
    "Available": (_kind_unseen, _some_pod_ready, incompatible, _none_desired, _no_pod_ready),
    "Progressing": (
        *_BLOCKED,
        _none_desired_nor_left,
        _rollout_complete,
        _rollout_paused,
        _rollout_stalled,
        _rolling_out,
    ),
    "Compatible": (_spec_invalid, _api_absent, _vllm_unsupported, _refused_at_start, _compatible),
    "GuidedDecoding": GUIDED_DECODING,
    "AuxiliaryResourcesReady": AUXILIARY_RESOURCES,
}
