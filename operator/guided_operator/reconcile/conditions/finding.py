"""A finding decides a condition; a check returns one, or None if it has nothing to report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from guided_contract.status import PodStatus
from guided_operator.api.status import ConditionStatus
from guided_operator.reconcile.conditions.inputs import Situation


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition's status, reason and message."""

    status: ConditionStatus
    reason: str
    message: str = ""


Check = Callable[[Situation], Finding | None]


def first(checks: Sequence[Check], situation: Situation) -> Finding | None:
    """Return the first finding of `checks`, in their order; None if there is none."""
    found = (check(situation) for check in checks)
    return next((finding for finding in found if finding is not None), None)


def reported(situation: Situation, reason: str, problem: Callable[[PodStatus], str]) -> Finding | None:
    """Return a False finding about the first pod whose status page has the problem; None: no page has.

    `problem` returns the message, "" where a page does not have it.
    """
    for pod, page in situation.pages:
        if message := problem(page):
            return Finding("False", reason, f"pod {pod.name}: {message}")
    return None
