"""One pass over a GuidedModel as its verdict sees it: what was observed, planned and written."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from guided_contract.status import PodStatus
from guided_operator import kinds
from guided_operator.apply import Outcome
from guided_operator.observe import Observed
from guided_operator.plan import Plan
from guided_operator.pods import PodView, Trouble, replica_failure, trouble

Object = dict[str, Any]


@dataclass(frozen=True)
class Situation:
    """All that a verdict may look at: what was seen, what should be, and what came of writing it."""

    observed: Observed
    plan: Plan
    outcome: Outcome

    @cached_property
    def deployment(self) -> Object | None:
        """The Deployment as last known: as written in this pass, else as seen."""
        for (kind, _), item in self.outcome.live.items():
            if kind == kinds.DEPLOYMENT.name:
                return item
        name: str = self.observed.key.name
        return self.observed.child(kinds.DEPLOYMENT, name)

    @cached_property
    def live(self) -> tuple[PodView, ...]:
        """Pods that serve or are about to, of any revision."""
        return tuple(pod for pod in self.observed.pods if pod.live)

    @cached_property
    def current(self) -> tuple[PodView, ...]:
        """Live pods of the current revision."""
        return tuple(pod for pod in self.live if pod.revision == self.plan.revision)

    @cached_property
    def pages(self) -> tuple[tuple[PodView, PodStatus], ...]:
        """What the sidecars of the current pods said, where they said something."""
        pages = ((pod, self.observed.pages.get(pod.uid)) for pod in self.current)
        return tuple(
            (pod, page.status) for pod, page in pages if page is not None and page.status is not None
        )

    @cached_property
    def ready(self) -> int:
        """How many current pods are ready."""
        return sum(pod.ready for pod in self.current)

    @cached_property
    def trouble(self) -> Trouble | None:
        """What keeps the current pods, or the Deployment itself, from getting on."""
        return trouble(self.current) or replica_failure(self.deployment)

    @property
    def progress(self) -> str:
        """How far the rollout is, for a message."""
        others = len(self.live) - len(self.current)
        old = f", {others} of older revisions are still there" if others else ""
        return f"{self.ready} of {self.plan.desired} pods are ready{old}"
