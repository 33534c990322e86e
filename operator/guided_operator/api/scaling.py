"""How many pods a user asks for, over how many nodes, who may change the number, and who may reach them."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from guided_contract.heartbeat import SLOTS
from guided_operator.api.base import ApiModel, Between, Quantity, text, unique_names
from guided_operator.api.rule import Rule

Labels = Annotated[dict[str, Annotated[str, text(63, least=0)]], Field(max_length=16)]


class Parallelism(ApiModel):
    """How the model is spread over devices."""

    tensor: Annotated[int, Field(ge=1, le=128)] = Field(
        default=1,
        description=(
            "Ranks that share each layer. Default: 1. GPUs per pod are tensor times pipeline times data, "
            "divided by nodes; at most about 128, the slots for heartbeats."
        ),
    )
    pipeline: Annotated[int, Field(ge=1, le=128)] = Field(
        default=1, description="Stages that the layers are parted into; the last one samples. Default: 1."
    )
    data: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="Engines in a pod that take requests in turn, each with all layers. Default: 1.",
    )
    nodes: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description=(
            "Pods, and so machines, that the ranks of one replica are spread over. Default: 1. More than 1 "
            "makes a LeaderWorkerSet (whose API must be installed) in place of a Deployment. One cannot be "
            "changed to more, nor more to one."
        ),
    )

    @property
    def ranks(self) -> int:
        """Workers in a pod, of all its engines."""
        return self.tensor * self.pipeline * self.data // self.nodes


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


class NetworkPeer(ApiModel):
    """Pods that may connect."""

    namespace_labels: Labels = Field(
        default={}, description="Labels of their namespace. Default: none, which means this namespace."
    )
    pod_labels: Labels = Field(
        default={}, description="Labels of the pods. Default: none, which means all of the namespace's."
    )


class NetworkPolicy(ApiModel):
    """Who may connect to the pods; what they connect to is not limited."""

    allow_from: Annotated[list[NetworkPeer], Field(max_length=16)] = Field(
        default=[NetworkPeer()],
        description=(
            "Pods that may reach the API and the metrics. Default: all of this namespace. The operator may "
            "always read the sidecar's status."
        ),
    )


_NODES: Final = (
    "(has({0}.parallelism) && has({0}.parallelism.nodes) && {0}.parallelism.nodes > 1)"  # as a boolean
)

SCALING_RULES: Final = (
    Rule(
        ("spec", "parallelism"),
        "data",
        f"data times (1 + tensor times pipeline) may not exceed {SLOTS}, the slots for heartbeats",
        # Where the whole object is a default, its own are not in it yet.
        "!has(self.tensor) || !has(self.pipeline) || !has(self.data)"
        f" || self.data * (1 + self.tensor * self.pipeline) <= {SLOTS}",
        lambda spread: spread.data * (1 + spread.tensor * spread.pipeline) > SLOTS,
    ),
    Rule(
        ("spec", "parallelism"),
        "nodes",
        "tensor times pipeline must be a multiple of nodes, so that each has as many ranks",
        "!has(self.tensor) || !has(self.pipeline) || !has(self.nodes)"
        " || (self.tensor * self.pipeline) % self.nodes == 0",
        lambda spread: spread.tensor * spread.pipeline % spread.nodes != 0,
    ),
    Rule(
        ("spec", "parallelism"),
        "data",
        "several engines over several nodes are not supported yet: set data or nodes to 1",
        "!has(self.data) || !has(self.nodes) || self.data == 1 || self.nodes == 1",
        lambda spread: spread.data > 1 and spread.nodes > 1,
    ),
    Rule(
        ("spec",),
        "parallelism.nodes",
        "one node cannot be changed to several, nor several to one: the pods' kind of owner would change",
        f"{_NODES.format('self')} == {_NODES.format('oldSelf')}",
        lambda _: False,  # about a change, which one manifest does not show
    ),
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
