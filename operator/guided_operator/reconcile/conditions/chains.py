"""The conditions of a GuidedModel: of each, the first of its checks that finds something decides.

A check is named after the problem that it finds, and returns None where there is none.
"""

from dataclasses import replace
from typing import Final

from guided_contract.status import NotReadyReason
from guided_operator.api.combinations import remarks
from guided_operator.kube import kinds
from guided_operator.kube.kinds import Kind
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.guided_decoding import guided_decoding, held_back, reported
from guided_operator.reconcile.conditions.pod_trouble import refusal, waiting
from guided_operator.reconcile.conditions.progress_deadline import OVERDUE
from guided_operator.reconcile.conditions.situation import Situation

# What a rollout costs where maxUnavailable is all of the replicas, as it is by default with one.
_INTERRUPTION: Final = (
    "; rollout.maxUnavailable lets all old pods stop first, so no pod may serve until a new one "
    "is ready; if there is room for one more pod, maxSurge 1 with maxUnavailable 0 avoids this"
)


def decide(situation: Situation) -> dict[str, Finding]:
    """Return the finding of every condition type."""
    return {
        "Ready": _ready(situation),
        "Available": _available(situation),
        "Progressing": _progressing(situation),
        "Compatible": _compatible(situation),
        "GuidedDecoding": guided_decoding(situation),
        "AuxiliaryResourcesReady": _auxiliary_resources(situation),
    }


def _ready(situation: Situation) -> Finding:
    found = _blocked(situation) or _none_desired(situation) or _workload_unseen(situation)
    if found is None and situation.is_complete:
        return Finding("True", "PodsReady", situation.progress)
    return (
        found
        or situation.trouble
        or _plugin_incompatible(situation)
        or waiting(situation.current)
        or _sidecar_holds_back(situation)
        or _rollout_paused(situation)
        or Finding("False", "PodsNotReady", situation.progress)
    )


def _available(situation: Situation) -> Finding:
    if (found := _pods_unseen(situation)) is not None:
        return found
    if any(pod.ready and pod.node == 0 for pod in situation.live):  # the others of a group have no API
        return Finding("True", "SomePodsReady", "at least one pod serves requests")
    return (
        _incompatible(situation)
        or _none_desired(situation)
        or Finding("False", "NoReadyPods", situation.progress)
    )


def _progressing(situation: Situation) -> Finding:
    price = _INTERRUPTION if situation.interrupts else ""
    return (
        _blocked(situation)
        or (_none_desired(situation) if not situation.live else None)
        or _rollout_complete(situation)
        or _rollout_paused(situation)
        or _rollout_stalled(situation)
        or Finding("True", "RollingOut", situation.progress + price)
    )


def _compatible(situation: Situation) -> Finding:
    if problems := situation.plan.problems:
        return Finding("False", "Invalid", "; ".join(map(str, problems)))
    facts = situation.facts
    return (
        _api_absent(situation, auxiliary=False)
        or reported(situation, "UnsupportedVLLM", lambda page: page.unsupported)
        or refusal(situation.current)
        or Finding("True", "Supported", "; ".join(remarks(facts)) if facts is not None else "")
    )


def _auxiliary_resources(situation: Situation) -> Finding:
    """Judge what stands beside the pods, which need none of it."""
    if (found := _incompatible(situation)) is not None:
        return replace(found, status="Unknown")
    beside = sorted(kind.name for kind in situation.planned if kind.auxiliary)
    return (
        _child_faulty(situation, auxiliary=True)
        # While revisions cannot be seen, nothing is written at all.
        or _kind_unseen(situation, kinds.REVISION, auxiliary=True)
        or _api_absent(situation, auxiliary=True)
        or Finding("True", "Applied", ", ".join(beside))
    )


def _blocked(situation: Situation) -> Finding | None:
    return (
        _incompatible(situation)
        or _child_faulty(situation, auxiliary=False)
        or _pods_unseen(situation)
        or _api_absent(situation, auxiliary=False)
    )


def _incompatible(situation: Situation) -> Finding | None:
    if situation.plan.problems:  # nothing is planned
        return Finding("False", "Incompatible", "the spec cannot be run: see the condition Compatible")
    return None


def _child_faulty(situation: Situation, *, auxiliary: bool) -> Finding | None:
    """Find children that are not as planned: the first one's reason, all of the messages."""
    faults = [fault for fault in situation.outcome.faults if fault.auxiliary == auxiliary]
    return Finding("False", faults[0].reason, "; ".join(each.message for each in faults)) if faults else None


def _pods_unseen(situation: Situation) -> Finding | None:
    return _kind_unseen(situation, kinds.POD, auxiliary=False)


def _kind_unseen(situation: Situation, needed: Kind, *, auxiliary: bool) -> Finding | None:
    """Find a kind that the operator may not see: the one that is needed, or one of the children's."""
    used = {needed.name, *(kind.name for kind in situation.planned if kind.auxiliary == auxiliary)}
    for name, why in sorted(situation.observed.blind.items()):
        if name in used:
            return Finding("Unknown", "Forbidden", f"the operator cannot list {name}s: {why}")
    return None


def _api_absent(situation: Situation, *, auxiliary: bool) -> Finding | None:
    needed = (kind for kind in situation.planned if kind.auxiliary == auxiliary)
    absent = [each for each in needed if each.name in situation.observed.absent]
    if not absent:
        return None
    served = ", ".join(sorted(f"{kind.name} ({kind.api_version})" for kind in absent))
    message = f"the spec needs {served}, not installed in this cluster; once installed, the operator uses it"
    return Finding("False", "APIMissing", message)


def _none_desired(situation: Situation) -> Finding | None:
    return Finding("False", "ScaledToZero", "replicas is 0") if situation.plan.desired == 0 else None


def _workload_unseen(situation: Situation) -> Finding | None:
    workload, (kind, _) = situation.workload, situation.workload_name
    if workload is None:
        return Finding("False", "Creating", f"the {kind} is being created")
    seen = workload.get("status", {}).get("observedGeneration", 0)
    if seen < workload["metadata"]["generation"]:
        message = f"the last change of the {kind} has not been observed by its controller yet"
        return Finding("False", "Progressing", message)
    return None


def _plugin_incompatible(situation: Situation) -> Finding | None:
    """Find a vLLM that the launcher left untouched, or a change to it that could not be made."""
    for pod, page in situation.unready:
        failed = [f"{patch.name} ({patch.reason})" for patch in page.patches if patch.state == "Failed"]
        message = page.unsupported or f"changes to vLLM failed: {', '.join(failed)}" * bool(failed)
        if message:
            return Finding("False", "PluginIncompatible", f"pod {pod.name}: {message}")
    return None


def _sidecar_holds_back(situation: Situation) -> Finding | None:
    found = held_back(situation.unready)
    return None if found is None or found.reason == NotReadyReason.NOT_READY else found


def _rollout_paused(situation: Situation) -> Finding | None:
    paused = situation.rollout.paused
    return Finding("False", "Paused", f"rollout.paused is true; {situation.progress}") if paused else None


def _rollout_stalled(situation: Situation) -> Finding | None:
    if _workload_unseen(situation):  # what it says is of what was asked for before
        return None
    conditions = (situation.workload or {}).get("status", {}).get("conditions", ())
    told = any(each["type"] == "Progressing" and each.get("reason") == OVERDUE for each in conditions)
    cause = f": {situation.trouble.message}" if situation.trouble else ""
    return Finding("False", OVERDUE, situation.progress + cause) if situation.overdue or told else None


def _rollout_complete(situation: Situation) -> Finding | None:
    plan = situation.plan
    if _workload_unseen(situation) or not situation.is_complete or len(situation.live) > plan.desired:
        return None
    if plan.revision == plan.asked:
        return Finding("False", "Complete", situation.progress)
    held = f"rollout.rollbackTo keeps revision {plan.revision}; the spec's revision is {plan.asked}"
    return Finding("False", "RolledBack", f"{situation.progress}; {held}")
