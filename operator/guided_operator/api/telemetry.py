"""Where traces and metrics go: `spec.telemetry`."""

from typing import Annotated, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel, Between, text
from guided_operator.api.secret_refs import SecretKey, SecretName


class OtlpTls(ApiModel):
    """Certificates. The collector's own is always checked."""

    ca_secret_ref: SecretKey | None = Field(
        default=None,
        description=(
            "The Secret's key with the certificates (PEM) that the collector's is checked by. Default: none, "
            "those of the engine's image."
        ),
    )
    client_secret_ref: SecretName | None = Field(
        default=None,
        description=(
            "A Secret of type kubernetes.io/tls: the certificate that the pod shows. Default: none."
        ),
    )


class Otlp(ApiModel):
    """An OpenTelemetry collector."""

    endpoint: Annotated[str, text(512, pattern=r"^https?://[A-Za-z0-9.\-\[\]:]+(/[A-Za-z0-9._~/-]*)?$")] = (
        Field(description="Base URL of the collector, as http://collector.observability:4318.")
    )
    protocol: Literal["HTTP", "GRPC"] = Field(
        default="HTTP", description="OTLP over HTTP with protobuf, or over gRPC. Default: HTTP."
    )
    tls: OtlpTls | None = Field(
        default=None,
        description="Certificates, for an endpoint with https://. Absent: those of the engine's image.",
    )
    headers_secret_ref: SecretName | None = Field(
        default=None,
        description=(
            "A Secret with headers of each request to the collector, as tokens: a header per key. It is "
            "mounted in the sidecar alone, and followed when it changes. Default: none."
        ),
    )


class Metrics(ApiModel):
    """A PodMonitor, by which the Prometheus operator scrapes the pods; its API must be installed."""

    interval: Annotated[str, Between("1s", "1h")] = Field(
        default="30s", description="Time between two scrapes. Default: 30s."
    )
    labels: Annotated[dict[str, Annotated[str, text(63, least=0)]], Field(max_length=16)] = Field(
        default={},
        description="Labels that your Prometheus selects PodMonitors by. Default: none.",
    )


class Telemetry(ApiModel):
    """Where traces and metrics go. Absent: no traces, and no PodMonitor."""

    otlp: Otlp | None = Field(default=None, description="The collector that gets the traces. Default: none.")
    sampling: Annotated[str, text(6, pattern=r"^(0(\.[0-9]{1,4})?|1(\.0{1,4})?)$")] = Field(
        default="1",
        description=(
            'Share of requests that have a trace, from "0" to "1", where the caller has not decided: a '
            'traceparent says so itself. Default: "1". What goes wrong in the pod itself is always told.'
        ),
    )
    metrics: Metrics | None = Field(
        default=None, description="A PodMonitor for the pods' metrics. Absent: none; {}: one."
    )
