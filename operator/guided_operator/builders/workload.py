"""What owns a model's pods: a Deployment, or over several nodes a LeaderWorkerSet."""

from math import ceil
from typing import Final

from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.api.rollout import surge, unavailable
from guided_operator.builders.objects import Object, given, is_grouped, metadata, selector

# On top of startupTimeout: pulling an image of some 10 GB.
_PULL_S: Final = 1200
# While a pod of a group is pending, a restart of another is no reason to begin again: each time would throw
# away what the others have pulled. By its own name, a value of restartPolicy, only LeaderWorkerSet 0.9 knows
# the rule; from 0.8 on it is known by this annotation, and earlier ones pay no heed to it.
_AFTER_START: Final = "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start"


def nodes_name(gm: GuidedModel) -> str:
    """Return the name of the LeaderWorkerSet, and of the headless Service that its pods are named under.

    Not the model's own: the controller looks for a Service called like the set, and would take the one that
    clients use for it.
    """
    return f"{gm.name}-nodes"


def workload(gm: GuidedModel, template: Object, replicas: int) -> Object:
    """Return the Deployment or LeaderWorkerSet that runs the pods, or that many groups of pods.

    The template is perhaps a stored one: of whatever release's fields.
    """
    made = _worker_set(gm, template, replicas) if is_grouped(gm) else _deployment(gm, template, replicas)
    # Those of its pods: Kueue reads its queue from the workload, and who pays is asked of both.
    made["metadata"]["labels"] = {**template["metadata"]["labels"], **made["metadata"]["labels"]}
    return made


def pod_labels(made: Object) -> Object:
    """Return the labels of the pods that a Deployment or LeaderWorkerSet makes."""
    spec = made.get("spec", {})
    template = spec.get("leaderWorkerTemplate", {}).get("workerTemplate") or spec.get("template", {})
    labels: Object = template.get("metadata", {}).get("labels", {})
    return labels


def progress_deadline_s(gm: GuidedModel) -> int:
    """Return after how many seconds without progress a rollout counts as stuck."""
    own = gm.spec.rollout.progress_deadline
    return ceil(seconds(own)) if own else ceil(seconds(gm.spec.probes.startup_timeout)) + _PULL_S


def _deployment(gm: GuidedModel, template: Object, replicas: int) -> Object:
    rollout = gm.spec.rollout
    bounds = {"maxSurge": rollout.max_surge, "maxUnavailable": rollout.max_unavailable}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(gm),
        "spec": given(
            paused=rollout.paused or None,  # the server leaves false out
            progressDeadlineSeconds=progress_deadline_s(gm),
            replicas=replicas,
            revisionHistoryLimit=1,  # rollback is the operator's, by ControllerRevision
            selector={"matchLabels": selector(gm)},
            strategy={"rollingUpdate": bounds, "type": "RollingUpdate"},
            template=template,
        ),
    }


def _worker_set(gm: GuidedModel, template: Object, replicas: int) -> Object:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {**metadata(gm, nodes_name(gm)), "annotations": {_AFTER_START: "true"}},
        "spec": {
            "replicas": replicas,
            "startupPolicy": "LeaderCreated",  # no rank is ready before all are there
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": _worker_set_bounds(gm, replicas),
            },
            "leaderWorkerTemplate": {
                "size": gm.spec.parallelism.nodes,
                # Ranks that have lost one of theirs wait for it for ever; they begin again together.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": template,
            },
        },
    }


def _worker_set_bounds(gm: GuidedModel, replicas: int) -> Object:
    """Return how many groups may be too many or too few, in numbers: percentages that come to 0 are refused.

    Paused: no group from the first on is changed, and none beside them is made, which would stay.
    """
    rollout = gm.spec.rollout
    if rollout.paused:
        return {"maxSurge": 0, "maxUnavailable": 1, "partition": replicas}
    return {"maxSurge": surge(rollout, replicas), "maxUnavailable": unavailable(rollout, replicas)}
