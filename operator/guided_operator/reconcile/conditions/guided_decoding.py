"""The checks of the condition GuidedDecoding."""

from typing import Final

from guided_contract.status import NotReadyReason, PodStatus
from guided_operator.reconcile.conditions.checks import Check, held_back, last_failure, reported
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.inputs import Situation


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


def _plugin_inactive(situation: Situation) -> Finding | None:
    return reported(situation, NotReadyReason.PLUGIN_INACTIVE, lambda page: page.unsupported)


def _sidecar_not_ready(situation: Situation) -> Finding | None:
    return held_back(situation.pages)


def _ranks_desynchronized(situation: Situation) -> Finding | None:
    return reported(situation, "Desync", lambda page: page.desync)


def _service_exhausted(situation: Situation) -> Finding | None:
    def problem(page: PodStatus) -> str:
        return page.exhausted + last_failure(page)

    return reported(situation, NotReadyReason.SERVICE_EXHAUSTED, problem)


def _grammar_without_text(situation: Situation) -> Finding | None:
    faults = situation.plan.grammar_faults
    if not faults:
        return None
    return Finding(
        "False", NotReadyReason.GRAMMARS_PENDING, "; ".join(f"{name}: {why}" for name, why in faults.items())
    )


def _grammar_not_served(situation: Situation) -> Finding | None:
    def problem(page: PodStatus) -> str:
        grammars = (one for one in page.grammars if one.state != "Ready")
        return "; ".join(f"grammar {one.name} is {one.state}: {one.reason}" for one in grammars)

    return reported(situation, NotReadyReason.GRAMMARS_PENDING, problem)


def _sidecar_silent(situation: Situation) -> Finding | None:
    told = {pod.uid for pod, _ in situation.pages}
    for pod in situation.current:
        if pod.ready and pod.uid not in told:
            page = situation.observed.pages.get(pod.uid)
            return Finding("Unknown", "SidecarUnreachable", f"pod {pod.name}: {page.error if page else ''}")
    return None


def _libraries_unmeasured(situation: Situation) -> Finding | None:
    """Find grammar libraries that Auto takes for JSON schemas no more; what it does take is enforced."""
    for pod, page in situation.pages:
        if page.unmeasured:
            each = ", ".join(f"{one.name} {one.version}, not {one.measured}" for one in page.unmeasured)
            message = (
                f"pod {pod.name} has a grammar library in a version whose JSON Schema "
                f"support was not measured: {each}"
            )
            return Finding("True", "LibrariesUnmeasured", message)
    return None


def _guided_active(situation: Situation) -> Finding:
    return Finding("True", "Active", f"{len(situation.pages)} pods report guided decoding active")


def _scheduler_placed(situation: Situation) -> Finding | None:
    model = situation.plan.model
    if model is not None and model.spec.guided_decoding.placement == "Scheduler":
        return Finding(
            "False",
            "SchedulerPlacement",
            "vLLM's scheduler applies grammars, because guidedDecoding.placement is Scheduler",
        )
    return None


GUIDED_DECODING: Final[tuple[Check, ...]] = (
    _scheduler_placed,
    _plugin_inactive,
    _grammar_without_text,
    _sidecar_not_ready,
    _ranks_desynchronized,
    _service_exhausted,
    _grammar_not_served,
    _sidecar_silent,
    _nothing_known,
    _libraries_unmeasured,
    _guided_active,
)
