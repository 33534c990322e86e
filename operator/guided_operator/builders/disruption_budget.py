"""The PodDisruptionBudget: how many of the model's pods a drained node may take."""

from typing import Final

from kubernetes.aio import client as k8s

from guided_operator.api import GuidedModel
from guided_operator.builders.labels import metadata, selector

# One at a time leaves the others to serve; a single pod may go too, or no node could ever be drained.
_MAX_EVICTED: Final = 1


def disruption_budget(gm: GuidedModel) -> k8s.V1PodDisruptionBudget:
    """Return how many of the model's pods a drained node may take."""
    return k8s.V1PodDisruptionBudget(
        api_version="policy/v1",
        kind="PodDisruptionBudget",
        metadata=metadata(gm),
        spec=k8s.V1PodDisruptionBudgetSpec(
            selector=k8s.V1LabelSelector(match_labels=selector(gm)),
            max_unavailable=_MAX_EVICTED,
            # A pod that never gets ready must not keep its node from being drained.
            unhealthy_pod_eviction_policy="AlwaysAllow",
        ),
    )
