"""What owns a model's pods: a Deployment, or over several nodes a LeaderWorkerSet."""

from math import ceil
from typing import Any, Final

from kubernetes.aio import client as k8s

from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.api.rollout import surge, unavailable
from guided_operator.builders.labels import metadata, selector
from guided_operator.builders.objects import manifest

Object = dict[str, Any]

# On top of startupTimeout: pulling an image of some 10 GB.
_PULL_S: Final = 1200
# While a pod of a group is pending, a restart of another is no reason to begin again: each time would throw
# away what the others have pulled. By its own name, a value of restartPolicy, only LeaderWorkerSet 0.9 knows
# the rule; from 0.8 on it is known by this annotation, and earlier ones pay no heed to it.
_AFTER_START: Final = "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start"


def is_grouped(gm: GuidedModel) -> bool:
    """Say whether a replica is a group of pods."""
    return gm.spec.parallelism.nodes > 1


def nodes_name(gm: GuidedModel) -> str:
    """Return the name of the LeaderWorkerSet, and of the headless Service that its pods are named under.

    Not the model's own: the controller looks for a Service called like the set, and would take the one that
    clients use for it.
    """
    return f"{gm.name}-nodes"


def workload(gm: GuidedModel, template: Object, replicas: int) -> Object:
    """Return the Deployment or LeaderWorkerSet that runs the pods.

    Parameters
    ----------
    template
        A PodTemplateSpec as a plain object.
    replicas
        Number of pods; with parallelism.nodes above 1, of groups of pods.
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
    deployment = k8s.V1Deployment(
        api_version="apps/v1",
        kind="Deployment",
        metadata=metadata(gm),
        spec=k8s.V1DeploymentSpec(
            replicas=replicas,
            selector=k8s.V1LabelSelector(match_labels=selector(gm)),
            strategy=k8s.V1DeploymentStrategy(
                type="RollingUpdate",
                rolling_update=k8s.V1RollingUpdateDeployment(
                    max_surge=rollout.max_surge, max_unavailable=rollout.max_unavailable
                ),
            ),
            paused=rollout.paused or None,  # the server leaves false out
            revision_history_limit=1,  # rollback is the operator's, by ControllerRevision
            progress_deadline_seconds=progress_deadline_s(gm),
            template=k8s.V1PodTemplateSpec(),
        ),
    )
    plain = manifest(deployment)
    plain["spec"]["template"] = template  # perhaps a stored one: of whatever release's fields
    return plain


def _worker_set(gm: GuidedModel, template: Object, replicas: int) -> Object:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {**manifest(metadata(gm, nodes_name(gm))), "annotations": {_AFTER_START: "true"}},
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
