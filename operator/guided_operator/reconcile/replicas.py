"""What metrics tell of a model's replicas."""

from guided_contract import names
from guided_operator.builders import progress_deadline_s
from guided_operator.kube.pod_view import PodView, ready_replicas
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.reconcile.conditions.pod_trouble import trouble
from guided_operator.telemetry.metrics import Replicas


def replicas(situation: Situation) -> Replicas:
    """Return how many there should be, are ready, and start."""
    plan = situation.plan
    groups: dict[str, list[PodView]] = {}
    for pod in situation.live:
        groups.setdefault(pod.group, []).append(pod)
    return Replicas(
        revision=situation.revision,
        desired=plan.replicas,
        ready=ready_replicas(situation.live, plan.nodes),
        updated=situation.ready,
        starting=sum(_starts(pods) for pods in groups.values()),
        start_s=progress_deadline_s(plan.model) if plan.model else 0.0,
    )


def _starts(pods: list[PodView]) -> bool:
    """Say whether a replica is on its way to its first request; an engine that ended, or began, is not."""
    return trouble(pods) is None and not all(pod.ready or _has_begun(pod) for pod in pods)


def _has_begun(pod: PodView) -> bool:
    engines = (each for each in pod.containers if each.name == names.ENGINE_CONTAINER)
    return any(not engine.starting and not engine.waiting_reason for engine in engines)
