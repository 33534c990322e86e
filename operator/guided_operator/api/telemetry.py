"""Where traces and metrics go: `spec.telemetry`."""

from typing import Annotated, Final

from pydantic import Field

from guided_operator.api.base import ApiModel, Duration, LabelValue, between, text

_GROUP: Final = "[0-9A-Fa-f]{1,4}"
_IPV6: Final = "|".join(
    (
        f"({_GROUP}:){{7}}{_GROUP}",
        *(f"({_GROUP}:){{1,{7 - after}}}(:{_GROUP}){{1,{after}}}" for after in range(1, 7)),
        f"({_GROUP}:){{1,7}}:",
        f":((:{_GROUP}){{1,7}}|:)",
    )
)
# What readers of URLs take, so that no pod is started that cannot send.
_PORT: Final = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_ENDPOINT: Final = rf"^https?://([A-Za-z0-9][A-Za-z0-9.-]*|\[({_IPV6})\])(:({_PORT}))?(/[A-Za-z0-9._~/-]*)?$"


class Metrics(ApiModel):
    """A PodMonitor for the pods. The Prometheus operator's API must be installed."""

    interval: Annotated[Duration, between("1s", "1h")] = "30s"
    """Scrape interval, 1s to 1h. Default: 30s."""
    labels: Annotated[dict[str, LabelValue], Field(max_length=16)] = Field(default={})
    """Labels of the PodMonitor, for the selector of your Prometheus. Default: none."""


class Telemetry(ApiModel):
    """Where traces and metrics go."""

    endpoint: Annotated[str, text(512, pattern=_ENDPOINT)] | None = None
    """Base URL of the OpenTelemetry collector that receives the traces, such as
    http://collector.observability:4318. Protocol, headers and certificates are OTEL_* variables in
    engine.env. Default: none, no traces."""
    sampling: Annotated[str, text(6, pattern=r"^(0(\.[0-9]{1,4})?|1(\.0{1,4})?)$")] = "1"
    """Fraction of requests that are traced, from "0" to "1", unless the caller decides by a traceparent
    header. Faults of the pod itself are always traced. Default: "1"."""
    metrics: Metrics | None = None
    """PodMonitor for the metrics of the pods; {} creates one with all defaults. Default: none."""
