"""Where traces and metrics go: `spec.telemetry`."""

from typing import Annotated, Final

from pydantic import Field

from guided_operator.api.addresses import IPV6
from guided_operator.api.base import ApiModel, Duration, between, text

# What readers of URLs take, so that no pod is started that cannot send.
_PORT: Final = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_ENDPOINT: Final = rf"^https?://([A-Za-z0-9][A-Za-z0-9.-]*|\[({IPV6})\])(:({_PORT}))?(/[A-Za-z0-9._~/-]*)?$"


class Metrics(ApiModel):
    """A PodMonitor for the pods. The Prometheus operator's API must be installed."""

    interval: Annotated[Duration, between("1s", "1h")] = Field(
        default="30s", description="Time between two scrapes, 1s to 1h. Default: 30s."
    )
    labels: Annotated[dict[str, Annotated[str, text(63, least=0)]], Field(max_length=16)] = Field(
        default={},
        description="Labels of the PodMonitor, which your Prometheus selects it by. Default: none.",
    )


class Telemetry(ApiModel):
    """Where traces and metrics go."""

    endpoint: Annotated[str, text(512, pattern=_ENDPOINT)] | None = Field(
        default=None,
        description=(
            "Base URL of the OpenTelemetry collector that receives the traces, such as "
            "http://collector.observability:4318. Protocol, headers and certificates are variables of "
            "OpenTelemetry's SDK in engine.env. Default: none, no traces."
        ),
    )
    sampling: Annotated[str, text(6, pattern=r"^(0(\.[0-9]{1,4})?|1(\.0{1,4})?)$")] = Field(
        default="1",
        description=(
            'Fraction of requests that are traced, from "0" to "1", where the caller has not decided by '
            'a traceparent header. Faults in the pod itself are always traced. Default: "1".'
        ),
    )
    metrics: Metrics | None = Field(
        default=None,
        description="PodMonitor for the pods' metrics; {} creates one with all defaults. Default: none.",
    )
