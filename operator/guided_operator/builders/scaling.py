"""Autoscalers of the GuidedModel's scale subresource, and the PodDisruptionBudget."""

from math import ceil
from typing import Any, Final

from kubernetes.aio import client as k8s

from guided_contract import names
from guided_operator.api import API_VERSION, GuidedModel
from guided_operator.api.autoscaling import Autoscaling, Hpa, Keda
from guided_operator.api.base import seconds
from guided_operator.builders.labels import metadata, selector
from guided_operator.builders.objects import manifest

Object = dict[str, Any]

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


def autoscaler(gm: GuidedModel) -> Object | None:
    """Return the HorizontalPodAutoscaler or ScaledObject; None: replicas are the user's own to set."""
    scaling = gm.spec.autoscaling
    if scaling is None:
        return None
    return _scaled_object(gm, scaling, scaling.keda) if scaling.keda else _hpa(gm, scaling, scaling.hpa)


def _hpa(gm: GuidedModel, scaling: Autoscaling, hpa: Hpa | None) -> Object:
    hpa = hpa or Hpa()
    return manifest(
        k8s.V2HorizontalPodAutoscaler(
            api_version="autoscaling/v2",
            kind="HorizontalPodAutoscaler",
            metadata=metadata(gm),
            spec=k8s.V2HorizontalPodAutoscalerSpec(
                scale_target_ref=k8s.V2CrossVersionObjectReference(
                    api_version=API_VERSION, kind=names.KIND, name=gm.name
                ),
                min_replicas=scaling.min_replicas,
                max_replicas=scaling.max_replicas,
                metrics=[*_pod_metrics(hpa), *_cpu(hpa)],
                behavior=k8s.V2HorizontalPodAutoscalerBehavior(
                    scale_down=k8s.V2HPAScalingRules(
                        stabilization_window_seconds=ceil(seconds(hpa.scale_down_delay))
                    )
                ),
            ),
        )
    )


def _pod_metrics(hpa: Hpa) -> list[k8s.V2MetricSpec]:
    return [
        k8s.V2MetricSpec(
            type="Pods",
            pods=k8s.V2PodsMetricSource(
                metric=k8s.V2MetricIdentifier(name=metric.name),
                target=k8s.V2MetricTarget(type="AverageValue", average_value=metric.average_value),
            ),
        )
        for metric in hpa.pod_metrics
    ]


def _cpu(hpa: Hpa) -> list[k8s.V2MetricSpec]:
    if hpa.cpu_utilization is None:
        return []
    source = k8s.V2ContainerResourceMetricSource(
        name="cpu",
        container=names.ENGINE_CONTAINER,
        target=k8s.V2MetricTarget(type="Utilization", average_utilization=hpa.cpu_utilization),
    )
    return [k8s.V2MetricSpec(type="ContainerResource", container_resource=source)]


def _scaled_object(gm: GuidedModel, scaling: Autoscaling, keda: Keda) -> Object:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": manifest(metadata(gm)),
        "spec": {
            "scaleTargetRef": {"apiVersion": API_VERSION, "kind": names.KIND, "name": gm.name},
            "minReplicaCount": scaling.min_replicas,
            "maxReplicaCount": scaling.max_replicas,
            "pollingInterval": ceil(seconds(keda.polling_interval)),
            "cooldownPeriod": ceil(seconds(keda.cooldown_period)),
            "triggers": [
                {
                    "type": trigger.type,
                    "metadata": trigger.metadata,
                    **(
                        {"authenticationRef": {"name": trigger.authentication}}
                        if trigger.authentication
                        else {}
                    ),
                }
                for trigger in keda.triggers
            ],
        },
    }
