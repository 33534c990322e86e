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
            f"data times (1 + tensor times pipeline) must not exceed {SLOTS}, the size of a pod's "
            "heartbeat table",
            "!has(self.tensor) || !has(self.pipeline) || !has(self.data)"
            f" || self.data * (1 + self.tensor * self.pipeline) <= {SLOTS}",
        ),
        Rule(
            "nodes",
            "tensor times pipeline must be a multiple of nodes, so that each node has as many ranks",
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
    """Tensor parallel size: ranks that share each layer. Default: 1. A pod gets tensor times pipeline times
    data GPUs, divided by nodes."""
    pipeline: Annotated[int, Field(ge=1, le=128)] = 1
    """Pipeline parallel size: stages that the layers are divided into; the last stage samples. Default: 1."""
    data: Annotated[int, Field(ge=1, le=64)] = 1
    """Data parallel size: engines in a pod, each with all layers, that requests are distributed over. vLLM
    starts as many API servers, as `vllm serve` does. Default: 1."""
    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods, each on its own node, that the ranks of one replica are spread over. Default: 1. With more, a
    LeaderWorkerSet is created instead of a Deployment, and its API must be installed."""

    @property
    def ranks(self) -> int:
        """Workers in a pod, of all its engines."""
        return self.tensor * self.pipeline * self.data // self.nodes
