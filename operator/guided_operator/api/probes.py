"""Deadlines of health checks and the guided probe: `spec.probes`."""

from typing import Annotated, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel, Between


class GuidedProbe(ApiModel):
    """The guided probe: the pod's sidecar asks its engine for a guided answer, and checks that it is one."""

    mode: Literal["Startup", "Periodic"] = Field(
        default="Startup",
        description=(
            "Startup: until it has passed once, before which the pod is not ready. Periodic: again and again "
            "after that. Default: Startup, since clients' own requests show what goes wrong later."
        ),
    )
    period: Annotated[str, Between("5s", "24h")] = Field(
        default="1m",
        description=(
            "In mode Periodic, the time between two probes. Default: 1m. None is made while clients' guided "
            "requests are answered."
        ),
    )
    on_failure: Literal["Report", "Unready"] = Field(
        default="Report",
        description=(
            "What a failure means for a pod that has passed before. Report: the condition GuidedDecoding "
            "says it. Unready: the pod also gets no requests until it passes again. Default: Report, since "
            "unguided requests may do well, and what fails in one pod may fail in all."
        ),
    )


class Probes(ApiModel):
    """Deadlines of health checks."""

    startup_timeout: Annotated[str, Between("10s", "24h")] = Field(
        default="30m",
        description=(
            "Time for the engine to load its model; past it the container is restarted. Default: 30m, for "
            "large models."
        ),
    )
    stall_timeout: Annotated[str, Between("5s", "1h")] = Field(
        default="2m",
        description=("An engine with requests that makes no step for so long is restarted. Default: 2m."),
    )
    guided: GuidedProbe = Field(default=GuidedProbe(), description="The guided probe.")
