"""What several conditions check. A check returns a finding, or None if it has nothing to report."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from guided_contract.status import NotReadyReason, PodStatus
from guided_operator.kube.kinds import Kind
from guided_operator.kube.pod_view import PodView
from guided_operator.reconcile.apply import Fault
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.inputs import Situation

Check = Callable[[Situation], Finding | None]
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


def first(checks: Sequence[Check], situation: Situation) -> Finding:
    """Return the first finding of `checks`, in their order; the last of them always has one."""
    found = (check(situation) for check in checks)
    return next(finding for finding in found if finding is not None)


def incompatible(situation: Situation) -> Finding | None:
    """Return the finding that nothing is planned, since the spec cannot be run."""
    if situation.plan.problems:
        return Finding("False", "Incompatible", "the spec cannot be run: see the condition Compatible")
    return None


def faulty(faults: Iterable[Fault]) -> Finding | None:
    """Return the finding that children are not as planned: the first one's reason, all of the messages."""
    found = list(faults)
    if not found:
        return None
    return Finding("False", found[0].reason, "; ".join(fault.message for fault in found))


def unseen(situation: Situation, names: Collection[str]) -> Finding | None:
    """Return the finding that the operator may not see one of these kinds."""
    for name, why in sorted(situation.observed.blind.items()):
        if name in names:
            return Finding("Unknown", "Forbidden", f"the operator cannot see {name}s: {why}")
    return None


def absent(kinds: Iterable[Kind]) -> Finding | None:
    """Return the finding that the APIs of these kinds are not installed."""
    served = ", ".join(f"{kind.name} ({kind.api_version})" for kind in kinds)
    if not served:
        return None
    message = f"the spec needs {served}, not installed in this cluster; once installed, the operator uses it"
    return Finding("False", "APIMissing", message)


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
    return Finding("False", reason, f"pod {pod.name}: {message}{last_failure(page)}")


def last_failure(page: PodStatus) -> str:
    """Return what a message ends with where grammar workers failed too often, "" where they have not."""
    if not page.exhausted or page.last_failure is None:
        return ""
    return f"; last failure: {page.last_failure.code}: {page.last_failure.message}"
