"""How long a rollout of groups has made no progress, which a Deployment's controller reports by itself."""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from guided_operator.builders.workload import progress_deadline_s
from guided_operator.kube import kinds
from guided_operator.kube.key import Key
from guided_operator.reconcile.conditions.situation import Situation

OVERDUE: Final = "ProgressDeadlineExceeded"


class _Course(NamedTuple):
    """What is rolled out and the most progress so far; a group that restarts does not reduce it."""

    revision: str
    desired: int
    ready: int
    old: int


class Progress:
    """Remembers the progress of each rollout.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[Key, tuple[_Course, float]] = {}

    def left_s(self, situation: Situation) -> float | None:
        """Return the seconds until a rollout counts as stuck, 0 once it does; None: none is judged."""
        key, model, now = situation.observed.key, situation.plan.model, self._clock()
        if model is None or situation.workload_name[0] != kinds.WORKER_SET.name:
            self.forget(key)
            return None
        deadline_s = progress_deadline_s(model)
        course, since = self._last.get(key) or (None, now - _waited_s(situation, deadline_s))
        further = _furthest(course, situation)
        if situation.is_complete:
            since = math.inf  # until it is to be something else; a pod that fails later is no rollout
        elif course not in (None, further) or (model.spec.rollout.paused and since < now):
            since = now
        self._last[key] = further, since
        judged = not model.spec.rollout.paused and since < math.inf
        return max(since + deadline_s - now, 0.0) if judged else None

    def forget(self, key: Key) -> None:
        """Note that a model is gone, or has no groups."""
        self._last.pop(key, None)


def _furthest(course: _Course | None, situation: Situation) -> _Course:
    plan, old = situation.plan, len(situation.live) - len(situation.current)
    now = _Course(plan.revision, plan.desired, situation.ready, old)
    if course is None or course[:2] != now[:2]:
        return now
    return now._replace(ready=max(course.ready, now.ready), old=min(course.old, now.old))


def _waited_s(situation: Situation, deadline_s: float) -> float:
    """Return how long nothing is taken to have happened before the first look, perhaps after a restart."""
    observed = situation.observed
    conditions = (observed.model.get("status") or {}).get("conditions", ())
    told = any(
        (each.get("reason"), each.get("observedGeneration")) == (OVERDUE, observed.generation)
        for each in conditions
    )
    return deadline_s if told else 0.0
