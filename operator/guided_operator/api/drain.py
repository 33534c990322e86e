"""What becomes of requests in progress when a pod goes: `spec.drain`."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, Between


class Drain(ApiModel):
    """How a pod goes."""

    timeout: Annotated[str, Between("0s", "1h")] = Field(
        default="5m",
        description=(
            "What requests in progress get when their pod is to go: scaled down, replaced or evicted. A pod "
            "without any goes after seconds, so that a long time costs only those who wait for it. Default: "
            "5m, longer than nearly all answers take. The pod's grace period follows from it."
        ),
    )
