"""The input of all condition checks: what one pass observed, planned and wrote."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from guided_contract import names
from guided_contract.combinations.row import Facts
from guided_contract.compatibility import minor_of
from guided_contract.status import PodStatus
from guided_operator.api.combinations import facts_of
from guided_operator.api.rollout import Rollout, unavailable
from guided_operator.builders.workload import pod_labels
from guided_operator.kube import kinds
from guided_operator.kube.kinds import Kind
from guided_operator.kube.pod_view import PodView
from guided_operator.reconcile.apply import Outcome
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.pod_trouble import replica_failure, trouble
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.plan import Plan, serving

Object = dict[str, Any]


@dataclass(frozen=True)
class Situation:
    """All that a verdict may look at: what was seen, what should be, and what came of writing it."""

    observed: Observed
    plan: Plan
    outcome: Outcome
    overdue: bool = False  # groups that have made no progress for too long

    @cached_property
    def workload_name(self) -> tuple[str, str]:
        """Kind and name of what makes the pods."""
        planned = ((child["kind"], child["metadata"]["name"]) for child in self.plan.children)
        known = (each for each in planned if kinds.BY_NAME[each[0]] in kinds.WORKLOADS)
        return next(known, (kinds.DEPLOYMENT.name, self.observed.key.name))

    @cached_property
    def workload(self) -> Object | None:
        """What makes the pods, as last known: as written in this pass, else as seen."""
        return self._child(*self.workload_name)

    @cached_property
    def is_served(self) -> bool:
        """Whether there is a Service of ours, as far as Services can be seen."""
        is_known = kinds.SERVICE.name not in self.observed.blind
        return not is_known or self._child(kinds.SERVICE.name, self.observed.key.name) is not None

    @cached_property
    def planned(self) -> frozenset[Kind]:
        """The kinds of the children that there should be."""
        return frozenset(kinds.BY_NAME[child["kind"]] for child in self.plan.children)

    @cached_property
    def live(self) -> tuple[PodView, ...]:
        """Pods that serve or are about to, of any revision."""
        return tuple(pod for pod in self.observed.pods if pod.live)

    @cached_property
    def revision(self) -> str:
        """The key of what pods are of or turn to: while the planned one is refused, as it was before."""
        if all(fault.auxiliary for fault in self.outcome.faults):
            return self.plan.revision
        template = pod_labels(self.workload or {})
        return template.get(names.LABEL_REVISION) or serving(self.live) or self.plan.revision

    @cached_property
    def current(self) -> tuple[PodView, ...]:
        """Live pods of the current revision."""
        return tuple(pod for pod in self.live if pod.revision == self.revision)

    @cached_property
    def pages(self) -> tuple[tuple[PodView, PodStatus], ...]:
        """What the sidecars of the current pods said, where they said something."""
        pages = ((pod, self.observed.pages.get(pod.uid)) for pod in self.current)
        return tuple(
            (pod, page.status) for pod, page in pages if page is not None and page.status is not None
        )

    @cached_property
    def unready(self) -> tuple[tuple[PodView, PodStatus], ...]:
        """What those said whose pods are not ready."""
        return tuple((pod, page) for pod, page in self.pages if not pod.ready)

    @cached_property
    def facts(self) -> Facts | None:
        """What is known of the engines: what the spec says, and the pods of their model runner."""
        if self.plan.model is None:
            return None
        facts = facts_of(self.plan.model.spec)
        told = [page.versions for _, page in self.pages]
        runners = {each.get("modelRunner") for each in told} & {"V1", "V2"}
        minors = {minor_of(each.get("vllm", "")) for each in told} - {""}
        return msgspec.structs.replace(
            facts,
            runner=runners.pop() if len(runners) == 1 else facts.runner,
            minor=minors.pop() if len(minors) == 1 else facts.minor,
        )

    @cached_property
    def ready(self) -> int:
        """How many current pods are ready."""
        return sum(pod.ready for pod in self.current)

    @property
    def is_complete(self) -> bool:
        """Whether all pods that there should be are there and ready, and no others are left."""
        return self.ready >= self.plan.desired and len(self.live) == len(self.current)

    @cached_property
    def trouble(self) -> Finding | None:
        """What keeps the current pods, or what makes them, from getting on."""
        return trouble(self.current) or replica_failure(self.workload)

    @property
    def rollout(self) -> Rollout:
        """How a change is to reach the pods."""
        return self.plan.model.spec.rollout if self.plan.model else Rollout()

    @property
    def interrupts(self) -> bool:
        """Whether replacing pods may leave none that answers; a model's first pods replace none."""
        stored = self.observed.children.get(kinds.REVISION.name, {}).values()
        keys = {item["metadata"].get("labels", {}).get(names.LABEL_REVISION) for item in stored}
        left = self.plan.replicas - unavailable(self.rollout, self.plan.replicas)
        return left <= 0 and not keys <= {self.plan.revision}

    @property
    def progress(self) -> str:
        """How far the rollout is, for a message."""
        others = len(self.live) - len(self.current)
        old = f", {others} of older revisions still exist" if others else ""
        return f"{self.ready} of {self.plan.desired} pods are ready{old}"

    def _child(self, kind: str, name: str) -> Object | None:
        """Return a child of ours as last known, None where there is none."""
        written = self.outcome.live.get((kind, name))
        if written is not None:
            return written
        seen = self.observed.child(kinds.BY_NAME[kind], name)
        return seen if seen is not None and kinds.is_owned(seen, self.observed.uid) else None
