"""The autoscaler that sets the number of replicas: `spec.autoscaling`."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, Between, Quantity, text, unique_names
from guided_operator.api.rule import Rule


class PodMetric(ApiModel):
    """A per-pod metric, served by an adapter of the custom metrics API (custom.metrics.k8s.io)."""

    name: Annotated[str, text(253)] = Field(
        description="Name of the metric, such as vllm:num_requests_waiting."
    )
    average_value: Quantity = Field(description="Target value, averaged over the pods.")


class Hpa(ApiModel):
    """A HorizontalPodAutoscaler."""

    pod_metrics: Annotated[list[PodMetric], Field(max_length=8), AfterValidator(unique_names)] = Field(
        default=[],
        description=(
            "Per-pod metrics to scale on; the metric that asks for the most pods wins. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    cpu_utilization: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description=(
            "Target CPU utilization of the engine container, as a percentage of resources.requests.cpu, "
            "averaged over the pods. Default: none; for a model on a GPU it says little about the load."
        ),
    )
    scale_down_delay: Annotated[str, Between("0s", "1h")] = Field(
        default="5m",
        description=(
            "Stabilization window for scaling down: how long fewer pods must have been enough before pods"
            " are removed. Default: 5m, as in Kubernetes."
        ),
    )


class KedaTrigger(ApiModel):
    """A KEDA trigger."""

    type: Annotated[str, text(64)] = Field(description="Type of the KEDA scaler, such as prometheus.")
    metadata: Annotated[dict[str, Annotated[str, text(4096, least=0)]], Field(max_length=32)] = Field(
        default={}, description="Parameters of the scaler; all values are strings. Default: none."
    )
    authentication: Annotated[str, text(253)] | None = Field(
        default=None, description="Name of a TriggerAuthentication in this namespace. Default: none."
    )


class Keda(ApiModel):
    """A KEDA ScaledObject. KEDA must be installed."""

    triggers: Annotated[list[KedaTrigger], Field(min_length=1, max_length=8)] = Field(
        description="Triggers to scale on; the trigger that asks for the most pods wins."
    )
    polling_interval: Annotated[str, Between("1s", "1h")] = Field(
        default="30s", description="Time between two checks of the triggers. Default: 30s, as in KEDA."
    )
    cooldown_period: Annotated[str, Between("0s", "24h")] = Field(
        default="5m",
        description=(
            "How long all triggers must have been inactive before the last pod is removed. Default: 5m, "
            "as in KEDA."
        ),
    )


class Autoscaling(ApiModel):
    """An autoscaler that sets `replicas` for you. Exactly one of hpa and keda is set.

    The autoscaler writes the scale subresource of the GuidedModel; leave `replicas` out of what you apply.
    """

    min_replicas: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=1, description="Minimum number of replicas. Default: 1. 0 is allowed only with keda."
    )
    max_replicas: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="Maximum number of replicas. No default: it limits what a burst of requests may cost."
    )
    hpa: Hpa | None = Field(default=None, description="Scale with a HorizontalPodAutoscaler. Default: none.")
    keda: Keda | None = Field(default=None, description="Scale with a KEDA ScaledObject. Default: none.")


AUTOSCALING_RULES: Final = (
    Rule(
        ("spec", "autoscaling"),
        "hpa",
        "exactly one of hpa and keda must be set",
        "has(self.hpa) != has(self.keda)",
        lambda scaling: (scaling.hpa is None) == (scaling.keda is None),
    ),
    Rule(
        ("spec", "autoscaling"),
        "minReplicas",
        "minReplicas must not exceed maxReplicas",
        "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
        lambda scaling: scaling.min_replicas > scaling.max_replicas,
    ),
    Rule(
        ("spec", "autoscaling"),
        "minReplicas",
        "must be at least 1 with hpa: use keda to scale to 0",
        "!has(self.hpa) || !has(self.minReplicas) || self.minReplicas > 0",
        lambda scaling: scaling.hpa is not None and scaling.min_replicas == 0,
    ),
    Rule(
        ("spec", "autoscaling", "hpa"),
        "podMetrics",
        "at least one of podMetrics and cpuUtilization must be set",
        "has(self.cpuUtilization) || (has(self.podMetrics) && self.podMetrics.size() > 0)",
        lambda hpa: hpa.cpu_utilization is None and not hpa.pod_metrics,
    ),
)
