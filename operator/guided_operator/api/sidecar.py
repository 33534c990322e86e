"""The sidecar's resources and the restart budget of its grammar workers: `spec.sidecar`."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, Between
from guided_operator.api.resources import Resources


class Restart(ApiModel):
    """Restart budget of grammar workers."""

    max_attempts: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=10,
        description=(
            "Restarts before new guided requests get a 503. Default: 10. A crash loop must not eat the node."
        ),
    )
    base_delay: Annotated[str, Between("1ms", "1m")] = Field(
        default="100ms", description="Wait before the first restart; doubles with each. Default: 100ms."
    )
    max_delay: Annotated[str, Between("1ms", "1h")] = Field(
        default="30s", description="Longest wait between restarts. Default: 30s."
    )
    reset_after: Annotated[str, Between("1s", "24h")] = Field(
        default="5m", description="So long without a crash restores the budget. Default: 5m."
    )


SIDECAR_RESOURCES = Resources(
    requests={"cpu": "100m", "memory": "512Mi"},
    limits={"memory": "4Gi"},
)


class Sidecar(ApiModel):
    """The process beside the engine: grammar workers, telemetry, health."""

    resources: Resources = Field(
        default=SIDECAR_RESOURCES,
        description=(
            "Resources of the sidecar container. Default: 100m CPU and 512Mi memory asked for, at most "
            "4Gi memory, enough for a worker at its own limit and a spare."
        ),
    )
    restart: Restart = Field(default=Restart(), description="Restart budget of grammar workers.")
