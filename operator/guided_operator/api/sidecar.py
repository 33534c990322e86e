"""The sidecar's resources and the restart budget of its grammar workers: `spec.sidecar`."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, Between
from guided_operator.api.resources import Resources


class Restart(ApiModel):
    """Restart budget of the grammar workers."""

    max_attempts: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=10,
        description=(
            "Number of restarts before new guided requests get a 503. It keeps a crash loop from using up"
            " the node. Default: 10."
        ),
    )
    base_delay: Annotated[str, Between("1ms", "1m")] = Field(
        default="100ms",
        description="Delay before the first restart; it doubles with each further one. Default: 100ms.",
    )
    max_delay: Annotated[str, Between("1ms", "1h")] = Field(
        default="30s", description="Maximum delay between restarts. Default: 30s."
    )
    reset_after: Annotated[str, Between("1s", "24h")] = Field(
        default="5m", description=("Time without a crash after which the budget is full again. Default: 5m.")
    )


class Sidecar(ApiModel):
    """The sidecar container: grammar workers, telemetry and health."""

    resources: Resources = Field(
        default=Resources(),
        description=(
            "Resources of the sidecar container. Default: requests of 100m CPU and 512Mi memory, and a "
            "memory limit of 4Gi, enough for one worker at its own limit and a spare. Whichever of CPU and "
            "memory has a request or a limit here has no default."
        ),
    )
    restart: Restart = Field(default=Restart(), description="Restart budget of the grammar workers.")
