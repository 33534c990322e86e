"""Deadlines of health checks and the guided probe: `spec.probes`."""

from typing import Annotated, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel, Between


class GuidedProbe(ApiModel):
    """The guided probe: the sidecar sends a guided request to its engine and checks the answer."""

    mode: Literal["Startup", "Periodic"] = Field(
        default="Startup",
        description=(
            "Startup: probe until it has passed once; the pod is not ready before. Periodic: go on "
            "probing after that. Default: Startup, because later faults show in clients' own requests."
        ),
    )
    period: Annotated[str, Between("5s", "24h")] = Field(
        default="1m",
        description="In mode Periodic, the time between two probes. Default: 1m.",
    )
    on_failure: Literal["Report", "Unready"] = Field(
        default="Report",
        description=(
            "What a failure does to a pod that has passed before. Report: it is reported in the condition"
            " GuidedDecoding. Unready: the pod also becomes not ready until the probe passes again. "
            "Default: Report, because requests without a grammar may still work, and what fails in one "
            "pod may fail in all."
        ),
    )


class Probes(ApiModel):
    """Deadlines of health checks."""

    startup_timeout: Annotated[str, Between("10s", "24h")] = Field(
        default="30m",
        description=(
            "Time that the engine has to load its model; after that the container is restarted. vLLM's own "
            "waits while it starts are as long, so over several nodes this must cover how much later "
            "another node's pod starts. Default: 30m, for large models."
        ),
    )
    stall_timeout: Annotated[str, Between("5s", "1h")] = Field(
        default="2m",
        description=(
            "An engine that has requests but completes no step for this long is restarted. Default: 2m."
        ),
    )
    guided: GuidedProbe = Field(
        default=GuidedProbe(),
        description="The guided probe: a guided request that the sidecar sends to its engine.",
    )
