"""What is remembered of a model's children from one pass to the next."""

from typing import Final

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.apiserver import Object
from guided_operator.kube.diff import differences
from guided_operator.kube.kinds import Kind
from guided_operator.reconcile.observe import REREAD_S, Asked, Observed

# As often, and for so long, is refused what may be over in a moment, before anybody is told.
MOST_DOUBTED: Final = 3
DOUBTED_S: Final = 30.0
# While pods are missing, something that they need may be.
REREAD_SOON_S: Final = 30.0


class Known:
    """What is remembered of one model's children, by path.

    `read`: those of `kinds.READ`, as read or written last; None: there was none. `refused`: when the
    account's rights were refused. `unsettled`: the mark of what was applied, and what the object did not take
    of it.
    """

    def __init__(self) -> None:
        self.read: dict[str, Object | None] = {}
        self.refused: dict[str, list[float]] = {}
        self.unsettled: dict[str, tuple[str, tuple[str, ...]]] = {}

        self._asked: Asked | None = None
        self._read_s = 0.0

    def expire(self, observed: Observed, desired: int, now_s: float) -> None:
        """Forget what was read where it may be something else by now."""
        is_complete = sum(pod.ready for pod in observed.pods) >= desired
        most_s = REREAD_S if is_complete else REREAD_SOON_S
        if observed.asked != self._asked or now_s - self._read_s >= most_s:
            self.read.clear()
            self._asked, self._read_s = observed.asked, now_s

    def child(self, observed: Observed, kind: Kind, name: str) -> Object | None:
        """Return a child, as watched or as read last; None where none is known."""
        if kind in kinds.READ:
            return self.read.get(kind.path(observed.key.namespace, name))
        return observed.child(kind, name)

    def is_young(self, path: str, now_s: float) -> bool:
        """Note a refusal that may be over in a moment, and return whether it has not lasted yet."""
        since = self.refused.setdefault(path, [])
        since.append(now_s)
        del since[1:-MOST_DOUBTED]
        return len(since) < MOST_DOUBTED or now_s - since[0] < DOUBTED_S

    def is_settled(self, path: str, marked: Object, seen: Object) -> bool:
        """Return whether an object is as wanted, or as far as it will be."""
        missing = tuple(differences(marked, seen))
        if not missing:
            self.unsettled.pop(path, None)
            return True
        return self.unsettled.get(path) == (mark_of(marked), missing)


def mark_of(marked: Object) -> str:
    """Return the mark of a manifest, or of an object: what it was made from."""
    mark: str = marked["metadata"]["annotations"][names.ANNOTATION_APPLIED]
    return mark
