"""What may be wrong with some of the children; the conditions differ in which of them they look at."""

from collections.abc import Collection, Iterable

from guided_operator.kube.kinds import Kind
from guided_operator.reconcile.apply import Fault
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.inputs import Situation


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
