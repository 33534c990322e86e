"""What a user asks for beside the model: resources, deadlines, telemetry and the sidecar."""

from typing import Annotated, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel, Between, Quantity, text

Amounts = Annotated[dict[str, Quantity], Field(max_length=16)]


class Resources(ApiModel):
    """Compute resources of a container, as in a pod."""

    requests: Amounts = Field(default={}, description="What the scheduler reserves. Default: none.")
    limits: Amounts = Field(
        default={},
        description="What the container may not exceed. Default: none.",
    )


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


class SecretKey(ApiModel):
    """A key of a Secret in this namespace."""

    name: Annotated[str, text(253)] = Field(description="Name of the Secret.")
    key: Annotated[str, text(253)] = Field(description="Key in the Secret.")


class SecretName(ApiModel):
    """A Secret in this namespace."""

    name: Annotated[str, text(253)] = Field(description="Name of the Secret.")


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
