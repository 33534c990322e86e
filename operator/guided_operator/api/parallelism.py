"""How one replica is spread over devices and nodes: `spec.parallelism`."""

from typing import Annotated

from pydantic import Field

from guided_contract.heartbeat import SLOTS
from guided_operator.api.base import ApiModel
from guided_operator.api.rule import Rule, rules


class Parallelism(ApiModel):
    """How the model is spread over devices."""

    model_config = rules(  # where the whole object is a default, its own are not in it yet
        Rule(
            "data",
            f"data * (1 + tensor * pipeline) must not exceed {SLOTS}, the number of processes that a pod can "
            "watch",
            "!has(self.tensor) || !has(self.pipeline) || !has(self.data)"
            f" || self.data * (1 + self.tensor * self.pipeline) <= {SLOTS}",
        ),
        Rule(
            "nodes",
            "tensor * pipeline must be a multiple of nodes, so that all nodes have the same number of ranks",
            "!has(self.tensor) || !has(self.pipeline) || !has(self.nodes)"
            " || (self.tensor * self.pipeline) % self.nodes == 0",
        ),
        Rule(
            "data",
            "data above 1 together with nodes above 1 is not supported: set one of them to 1",
            "!has(self.data) || !has(self.nodes) || self.data == 1 || self.nodes == 1",
        ),
    )

    tensor: Annotated[int, Field(ge=1, le=128)] = 1
    """Tensor parallel size: number of ranks that share each layer. Default: 1. A pod gets tensor * pipeline *
    data / nodes GPUs."""
    pipeline: Annotated[int, Field(ge=1, le=128)] = 1
    """Pipeline parallel size: number of stages that the layers are divided into. The last stage samples.
    Default: 1."""
    data: Annotated[int, Field(ge=1, le=64)] = 1
    """Data parallel size: number of engines in a pod, each with all layers. vLLM distributes requests over
    them, and starts as many API servers. Must be 1 if nodes is above 1. data * (1 + tensor * pipeline) must
    not exceed 129. Default: 1."""
    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of nodes per replica. Each runs one pod with an equal share of the ranks. Default: 1. Above 1,
    the operator creates a LeaderWorkerSet instead of a Deployment, and the LeaderWorkerSet API must be
    installed. Cannot change from 1 to more, or back."""

    @property
    def ranks(self) -> int:
        """Workers in a pod, of all its engines."""
        return self.tensor * self.pipeline * self.data // self.nodes
