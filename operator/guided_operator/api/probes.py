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
            "vLLM's own waits while it starts are as long, so over several nodes this must cover how "
            "much later another node's pod starts. Default: 30m, for large models."
        ),
    )
    stall_timeout: Annotated[Duration, between("5s", "1h")] = Field(
        default="2m",
        description=(
            "An engine that has requests but completes no step for this long, 5s to 1h, is restarted. "
            "Default: 2m."
        ),
    )
