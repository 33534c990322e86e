"""What happens to in-flight requests when a pod stops: `spec.drain`."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, Duration, between


class Drain(ApiModel):
    """How a pod stops."""

    timeout: Annotated[Duration, between("0s", "1h")] = Field(
        default="5m",
        description=(
            "How long in-flight requests may run after the pod was told to stop, 0s to 1h. A pod without "
            "requests stops within seconds. Default: 5m."
        ),
    )
