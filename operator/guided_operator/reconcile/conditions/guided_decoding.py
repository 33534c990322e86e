"""The condition GuidedDecoding, and what else the pods' sidecars say."""

from collections.abc import Callable, Iterable
from typing import Final

from guided_contract.status import NotReadyReason, PodStatus
from guided_operator.kube.pod_view import PodView
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.situation import Situation

# What every pod says as it starts, or what nobody knows: another pod's fault is told first.
_OF_STARTS: Final = frozenset(
    {
        NotReadyReason.PLUGIN_INACTIVE,
        NotReadyReason.RANKS_MISSING,
        NotReadyReason.GRAMMARS_PENDING,
        NotReadyReason.PROBE_PENDING,
        NotReadyReason.NOT_READY,
    }
)


def guided_decoding(situation: Situation) -> Finding:
    """Return what is true of guided decoding: the first check that finds something decides."""
    model = situation.plan.model
    if model is not None and model.spec.guided_decoding.placement == "Scheduler":
        message = "vLLM's scheduler applies grammars, because guidedDecoding.placement is Scheduler"
        return Finding("False", "SchedulerPlacement", message)
    return (
        reported(situation, NotReadyReason.PLUGIN_INACTIVE, lambda page: page.unsupported)
        or _grammar_without_text(situation)
        or held_back(situation.pages)
        or reported(situation, "Desync", lambda page: page.desync)
        or reported(situation, NotReadyReason.SERVICE_EXHAUSTED, _exhausted)
        or reported(situation, NotReadyReason.GRAMMARS_PENDING, _grammars_not_served)
        or _sidecar_silent(situation)
        or _nothing_known(situation)
        or _libraries_unmeasured(situation)
        or Finding("True", "Active", f"{len(situation.pages)} pods report guided decoding active")
    )


def reported(situation: Situation, reason: str, problem: Callable[[PodStatus], str]) -> Finding | None:
    """Return a False finding about the first pod whose status page has the problem; None: no page has.

    `problem` returns the message, "" where a page does not have it.
    """
    for pod, page in situation.pages:
        if message := problem(page):
            return Finding("False", reason, f"pod {pod.name}: {message}")
    return None


def held_back(pages: Iterable[tuple[PodView, PodStatus]]) -> Finding | None:
    """Return a False finding about the worst of the pods whose sidecars are not ready; None: all are."""
    waiting = [(pod, page, NotReadyReason(page.reason)) for pod, page in pages if not page.ready]
    if not waiting:
        return None
    pod, page, reason = min(waiting, key=lambda each: each[2] in _OF_STARTS)
    message = page.message or "the sidecar is not ready"
    return Finding("False", reason, f"pod {pod.name}: {message}{_last_failure(page)}")


def _last_failure(page: PodStatus) -> str:
    """Return what a message ends with where grammar workers failed too often, "" where they have not."""
    if not page.exhausted or page.last_failure is None:
        return ""
    return f"; last failure: {page.last_failure.code}: {page.last_failure.message}"


def _exhausted(page: PodStatus) -> str:
    return page.exhausted + _last_failure(page)


def _grammars_not_served(page: PodStatus) -> str:
    grammars = (one for one in page.grammars if one.state != "Ready")
    return "; ".join(f"grammar {one.name} is {one.state}: {one.reason}" for one in grammars)


def _grammar_without_text(situation: Situation) -> Finding | None:
    faults = situation.plan.grammar_faults
    message = "; ".join(f"{name}: {why}" for name, why in faults.items())
    return Finding("False", NotReadyReason.GRAMMARS_PENDING, message) if faults else None


def _sidecar_silent(situation: Situation) -> Finding | None:
    told = {pod.uid for pod, _ in situation.pages}
    for pod in situation.current:
        if pod.ready and pod.uid not in told:
            page = situation.observed.pages.get(pod.uid)
            return Finding("Unknown", "SidecarUnreachable", f"pod {pod.name}: {page.error if page else ''}")
    return None


def _nothing_known(situation: Situation) -> Finding | None:
    if situation.pages:
        return None
    if situation.current:
        message = "no pod of the current revision has reported yet"
    elif situation.live:
        message = f"no pod of the current revision exists yet, {len(situation.live)} of older ones"
    else:
        message = "there are no pods"
    return Finding("Unknown", "Pending", message)


def _libraries_unmeasured(situation: Situation) -> Finding | None:
    """Find grammar libraries that Auto takes for JSON schemas no more; what it does take is enforced."""
    for pod, page in situation.pages:
        if page.unmeasured:
            each = ", ".join(f"{one.name} {one.version}, not {one.measured}" for one in page.unmeasured)
            message = (
                f"pod {pod.name} has a grammar library in a version whose JSON Schema "
                f"support was not tested: {each}"
            )
            return Finding("True", "LibrariesUnmeasured", message)
    return None
