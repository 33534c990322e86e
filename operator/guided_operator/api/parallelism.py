"""How one replica is spread over devices and nodes: `spec.parallelism`."""

from typing import Annotated, Final

from pydantic import Field

from guided_contract.heartbeat import SLOTS
from guided_operator.api.base import ApiModel
from guided_operator.api.rule import Rule


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


_NODES: Final = (
    "(has({0}.parallelism) && has({0}.parallelism.nodes) && {0}.parallelism.nodes > 1)"  # as a boolean
)

PARALLELISM_RULES: Final = (
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
)
