"""Who sets the number of replicas in the user's place: `spec.autoscaling`."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, Between, Quantity, text, unique_names
from guided_operator.api.rule import Rule


class PodMetric(ApiModel):
    """A metric of each pod, as an adapter serves it (custom.metrics.k8s.io)."""

    name: Annotated[str, text(253)] = Field(description="The metric's name, as vllm:num_requests_waiting.")
    average_value: Quantity = Field(description="What the pods should have on average.")


class Hpa(ApiModel):
    """Kubernetes' own HorizontalPodAutoscaler."""

    pod_metrics: Annotated[list[PodMetric], Field(max_length=8), AfterValidator(unique_names)] = Field(
        default=[],
        description="Metrics of the pods; the one that asks for most pods decides. Default: none.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    cpu_utilization: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description=(
            "CPU of the engine container, in percent of resources.requests.cpu, on average. Default: none; "
            "it says little of a model on a GPU."
        ),
    )
    scale_down_delay: Annotated[str, Between("0s", "1h")] = Field(
        default="5m",
        description="So long fewer pods must have been enough before some go. Default: 5m, as Kubernetes'.",
    )


class KedaTrigger(ApiModel):
    """What KEDA looks at."""

    type: Annotated[str, text(64)] = Field(description="The scaler's name in KEDA, as prometheus.")
    metadata: Annotated[dict[str, Annotated[str, text(4096, least=0)]], Field(max_length=32)] = Field(
        default={}, description="The scaler's parameters, all of them text. Default: none."
    )
    authentication: Annotated[str, text(253)] | None = Field(
        default=None, description="A TriggerAuthentication in this namespace, by name. Default: none."
    )


class Keda(ApiModel):
    """A ScaledObject for KEDA, which must be installed."""

    triggers: Annotated[list[KedaTrigger], Field(min_length=1, max_length=8)] = Field(
        description="What KEDA looks at; the trigger that asks for most pods decides."
    )
    polling_interval: Annotated[str, Between("1s", "1h")] = Field(
        default="30s", description="Time between two looks. Default: 30s, as KEDA's."
    )
    cooldown_period: Annotated[str, Between("0s", "24h")] = Field(
        default="5m",
        description="So long no trigger may be active before the last pod goes. Default: 5m, as KEDA's.",
    )


class Autoscaling(ApiModel):
    """Who sets `replicas` in the user's place. Exactly one of hpa and keda is set.

    The autoscaler writes the scale subresource of the GuidedModel; leave `replicas` out of what you apply.
    """

    min_replicas: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=1, description="Fewest pods. Default: 1. 0 only with keda."
    )
    max_replicas: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="Most pods. No default: it bounds what a burst of requests may cost."
    )
    hpa: Hpa | None = Field(default=None, description="By a HorizontalPodAutoscaler. Default: not.")
    keda: Keda | None = Field(default=None, description="By KEDA's ScaledObject. Default: not.")


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
        "a HorizontalPodAutoscaler keeps at least 1 pod: use keda to go to 0",
        "!has(self.hpa) || !has(self.minReplicas) || self.minReplicas > 0",
        lambda scaling: scaling.hpa is not None and scaling.min_replicas == 0,
    ),
    Rule(
        ("spec", "autoscaling", "hpa"),
        "podMetrics",
        "needs podMetrics or cpuUtilization to decide by",
        "has(self.cpuUtilization) || (has(self.podMetrics) && self.podMetrics.size() > 0)",
        lambda hpa: hpa.cpu_utilization is None and not hpa.pod_metrics,
    ),
)
