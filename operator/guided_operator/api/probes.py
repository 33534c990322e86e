"""Deadlines of health checks: `spec.probes`."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, Duration, between


class Probes(ApiModel):
    """Deadlines of health checks."""

    startup_timeout: Annotated[Duration, between("10s", "24h")] = Field(
        default="30m",
        description=(
            "Time that the engine has to load its model, 10s to 24h; then the container is restarted. "
            "Over several nodes it must cover how much later another node's pod starts. Default: 30m."
        ),
    )
    stall_timeout: Annotated[Duration, between("5s", "1h")] = Field(
        default="2m",
        description=(
            "An engine that has requests but completes no step for this long, 5s to 1h, is restarted. "
            "Default: 2m."
        ),
    )
