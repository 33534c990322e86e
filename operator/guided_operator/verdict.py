"""What is said of a GuidedModel: one chain of checks per condition, each named after what it looks for.

A chain's first check that finds something decides; the last one always does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from guided_contract.status import PodStatus
from guided_operator.api.status import ConditionStatus
from guided_operator.situation import Situation

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition's status, reason and message."""

    status: ConditionStatus
    reason: str
    message: str = ""


Check = Callable[[Situation], Finding | None]


def decide(situation: Situation) -> dict[str, Finding]:
    """Return the finding of every condition type."""
    return {name: _first(checks, situation) for name, checks in _CHAINS.items()}


def _first(checks: Sequence[Check], situation: Situation) -> Finding:
    found = (check(situation) for check in checks)
    return next(finding for finding in found if finding is not None)


def _spec_invalid(situation: Situation) -> Finding | None:
    problems = situation.plan.problems
    return Finding("False", "Invalid", "; ".join(map(str, problems))) if problems else None


def _vllm_unsupported(situation: Situation) -> Finding | None:
    return _told(situation, "UnsupportedVLLM", lambda page: page.unsupported)


def _told(situation: Situation, reason: str, problem: Callable[[PodStatus], str]) -> Finding | None:
    """Return the first pod's problem, with its name."""
    for pod, page in situation.pages:
        if message := problem(page):
            return Finding("False", reason, f"pod {pod.name}: {message}")
    return None


def _incompatible(situation: Situation) -> Finding | None:
    if situation.plan.problems:
        return Finding("False", "Incompatible", "the spec cannot be served, see the condition Compatible")
    return None


def _child_faulty(situation: Situation) -> Finding | None:
    for fault in situation.outcome.faults:
        return Finding("False", fault.reason, fault.message)
    return None


def _kind_unseen(situation: Situation) -> Finding | None:
    for name, why in sorted(situation.observed.blind.items()):
        return Finding("Unknown", "Forbidden", f"the operator cannot see {name}s: {why}")
    return None


def _none_desired(situation: Situation) -> Finding | None:
    return Finding("False", "ScaledToZero", "replicas is 0") if situation.plan.desired == 0 else None


def _none_desired_nor_left(situation: Situation) -> Finding | None:
    return _none_desired(situation) if not situation.live else None


def _deployment_unseen(situation: Situation) -> Finding | None:
    deployment = situation.deployment
    if deployment is None:
        return Finding("False", "Creating", "the Deployment is being created")
    seen = deployment.get("status", {}).get("observedGeneration", 0)
    if seen < deployment["metadata"]["generation"]:
        return Finding("False", "Progressing", "the Deployment's last change has not been acted upon yet")
    return None


def _pods_ready(situation: Situation) -> Finding | None:
    complete = situation.ready >= situation.plan.desired and len(situation.live) == len(situation.current)
    return Finding("True", "PodsReady", situation.progress) if complete else None


def _pods_in_trouble(situation: Situation) -> Finding | None:
    found = situation.trouble
    return Finding("False", found.reason, found.message) if found else None


def _pods_not_ready(situation: Situation) -> Finding:
    return Finding("False", "PodsNotReady", situation.progress)


def _some_pod_ready(situation: Situation) -> Finding | None:
    ready = sum(pod.ready for pod in situation.live)
    return Finding("True", "SomePodsReady", "at least one pod answers requests") if ready else None


def _rollout_stalled(situation: Situation) -> Finding | None:
    for condition in (situation.deployment or {}).get("status", {}).get("conditions", ()):
        if condition["type"] == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            cause = f": {situation.trouble.message}" if situation.trouble else ""
            return Finding("False", "ProgressDeadlineExceeded", situation.progress + cause)
    return None


def _rollout_complete(situation: Situation) -> Finding | None:
    if _deployment_unseen(situation) is None and _pods_ready(situation) is not None:
        return Finding("False", "Complete", situation.progress)
    return None


def _rolling_out(situation: Situation) -> Finding:
    return Finding("True", "RollingOut", situation.progress)


def _nothing_known(situation: Situation) -> Finding | None:
    if situation.pages:
        return None
    message = (
        "no pod of the current revision has said anything yet" if situation.current else "there is no pod"
    )
    return Finding("Unknown", "Pending", message)


def _plugin_inactive(situation: Situation) -> Finding | None:
    return _told(situation, "PluginInactive", lambda page: page.unsupported)


def _sidecar_not_ready(situation: Situation) -> Finding | None:
    for pod, page in situation.pages:
        if not page.ready:
            reason = page.reason if page.reason in _SIDECAR_REASONS else "NotReady"
            return Finding("False", reason, f"pod {pod.name}: {page.message or 'the sidecar is not ready'}")
    return None


def _ranks_desynchronized(situation: Situation) -> Finding | None:
    return _told(situation, "Desync", lambda page: page.desync)


def _grammar_without_text(situation: Situation) -> Finding | None:
    faults = situation.plan.grammar_faults
    if not faults:
        return None
    return Finding("False", "GrammarsPending", "; ".join(f"{name}: {why}" for name, why in faults.items()))


def _grammar_not_served(situation: Situation) -> Finding | None:
    def problem(page: PodStatus) -> str:
        grammars = (one for one in page.grammars if one.state != "Ready")
        return "; ".join(f"grammar {one.name} is {one.state}: {one.reason}" for one in grammars)

    return _told(situation, "GrammarsPending", problem)


def _sidecar_silent(situation: Situation) -> Finding | None:
    told = {pod.uid for pod, _ in situation.pages}
    for pod in situation.current:
        if pod.ready and pod.uid not in told:
            page = situation.observed.pages.get(pod.uid)
            return Finding("Unknown", "SidecarUnreachable", f"pod {pod.name}: {page.error if page else ''}")
    return None


def _guided_active(situation: Situation) -> Finding:
    return Finding("True", "Active", f"{len(situation.pages)} pods prove guided decoding")


def _scheduler_placed(situation: Situation) -> Finding | None:
    model = situation.plan.model
    if model is not None and model.spec.guided_decoding.placement == "Scheduler":
        return Finding(
            "False", "SchedulerPlacement", "vLLM's own scheduler applies grammars, as the spec asks"
        )
    return None


def _telemetry_unset(situation: Situation) -> Finding | None:
    model = situation.plan.model
    if model is None or model.spec.telemetry is None or model.spec.telemetry.otlp is None:
        return Finding("False", "Disabled", "the spec names no collector")
    return None


def _telemetry_set(situation: Situation) -> Finding:
    model = situation.plan.model
    otlp = model.spec.telemetry.otlp if model and model.spec.telemetry else None
    return Finding("True", "Configured", f"traces go to {otlp.endpoint}" if otlp else "")


def _compatible(_: Situation) -> Finding:
    return Finding("True", "Supported")


def _no_pod_ready(situation: Situation) -> Finding:
    return Finding("False", "NoReadyPods", situation.progress)


_SIDECAR_REASONS: Final = frozenset(
    {
        "PluginInactive",
        "RanksMissing",
        "GrammarsPending",
        "ProbePending",
        "ProbeFailed",
        "EngineStalled",
        "ServiceExhausted",
    }
)
_BLOCKED: Final[tuple[Check, ...]] = (_incompatible, _child_faulty, _kind_unseen)
_CHAINS: Final[dict[str, tuple[Check, ...]]] = {
    "Ready": (
        *_BLOCKED,
        _none_desired,
        _deployment_unseen,
        _pods_ready,
        _pods_in_trouble,
        _pods_not_ready,
    ),
    "Available": (_kind_unseen, _some_pod_ready, _none_desired, _no_pod_ready),
    "Progressing": (
        *_BLOCKED,
        _none_desired_nor_left,
        _rollout_complete,
        _rollout_stalled,
        _rolling_out,
    ),
    "Compatible": (_spec_invalid, _vllm_unsupported, _compatible),
    "GuidedDecoding": (
        _scheduler_placed,
        _plugin_inactive,
        _grammar_without_text,
        _sidecar_not_ready,
        _ranks_desynchronized,
        _grammar_not_served,
        _sidecar_silent,
        _nothing_known,
        _guided_active,
    ),
    "Telemetry": (_telemetry_unset, _telemetry_set),
}
