"""CPU and memory of a container: `spec.resources` and `spec.sidecar.resources`."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, Quantity

Amounts = Annotated[dict[str, Quantity], Field(max_length=16)]


class Resources(ApiModel):
    """Compute resources of a container, as in a pod."""

    requests: Amounts = Field(
        default={}, description="Amounts that the scheduler reserves. Default: the container's."
    )
    limits: Amounts = Field(
        default={},
        description="Amounts that the container may not exceed. Default: the container's, if any.",
    )
