"""Where traces and metrics go: `spec.telemetry`."""

from typing import Annotated, Final, Literal

from pydantic import Field

from guided_operator.api.addresses import IPV6
from guided_operator.api.base import ApiModel, Between, text
from guided_operator.api.rule import Rule, cel_text, matches
from guided_operator.api.secret_refs import SecretKey, SecretName

# What readers of URLs take, so that no pod is started that cannot send.
_PORT: Final = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_ENDPOINT: Final = rf"^https?://([A-Za-z0-9][A-Za-z0-9.-]*|\[({IPV6})\])(:({_PORT}))?(/[A-Za-z0-9._~/-]*)?$"


class OtlpTls(ApiModel):
    """Certificates. The collector's certificate is always verified."""

    ca_secret_key_ref: SecretKey | None = Field(
        default=None,
        description=(
            "Key of a Secret that holds the CA certificates (PEM) to verify the collector's certificate "
            "with. Default: none, the CAs of the engine's image."
        ),
    )
    client_secret_ref: SecretName | None = Field(
        default=None,
        description="Secret of type kubernetes.io/tls that holds the client certificate. Default: none.",
    )


class Otlp(ApiModel):
    """An OpenTelemetry collector."""

    endpoint: Annotated[str, text(512, pattern=r"^https?://[A-Za-z0-9.\-\[\]:]+(/[A-Za-z0-9._~/-]*)?$")] = (
        Field(description="Base URL of the collector, such as http://collector.observability:4318.")
    )
    protocol: Literal["HTTP", "GRPC"] = Field(
        default="HTTP",
        description="HTTP: OTLP over HTTP with protobuf. GRPC: OTLP over gRPC. Default: HTTP.",
    )
    tls: OtlpTls | None = Field(
        default=None,
        description=(
            "Certificates, for an https:// endpoint. Default: none, the CAs of the engine's image verify "
            "the collector."
        ),
    )
    headers_secret_ref: SecretName | None = Field(
        default=None,
        description=(
            "Secret that holds HTTP headers for requests to the collector, such as tokens, one header per"
            " key. Engine and sidecar both send, and read it as they start. Default: none."
        ),
    )


class Metrics(ApiModel):
    """A PodMonitor for the pods. The Prometheus operator's API must be installed."""

    interval: Annotated[str, Between("1s", "1h")] = Field(
        default="30s", description="Time between two scrapes. Default: 30s."
    )
    labels: Annotated[dict[str, Annotated[str, text(63, least=0)]], Field(max_length=16)] = Field(
        default={},
        description="Labels of the PodMonitor, which your Prometheus selects it by. Default: none.",
    )


class Telemetry(ApiModel):
    """Where traces and metrics go."""

    otlp: Otlp | None = Field(
        default=None, description="OpenTelemetry collector that receives the traces. Default: none."
    )
    sampling: Annotated[str, text(6, pattern=r"^(0(\.[0-9]{1,4})?|1(\.0{1,4})?)$")] = Field(
        default="1",
        description=(
            'Fraction of requests that are traced, from "0" to "1", where the caller has not decided by a'
            ' traceparent header. Faults in the pod itself are always traced. Default: "1".'
        ),
    )
    metrics: Metrics | None = Field(
        default=None,
        description="PodMonitor for the pods' metrics; {} creates one with all defaults. Default: none.",
    )


TELEMETRY_RULES: Final = (
    Rule(
        ("spec", "telemetry", "otlp"),
        "endpoint",
        "must be a URL of a host name or an address (IPv6 in [ ]), with a port up to 65535 if any, such as "
        "http://collector.observability:4318 or http://[fd00::1]:4318",
        f"self.endpoint.matches({cel_text(_ENDPOINT)})",
        lambda otlp: not matches(_ENDPOINT, otlp.endpoint),
    ),
    Rule(
        ("spec", "telemetry", "otlp"),
        "tls",
        "may be set only for an https:// endpoint",
        "!has(self.tls) || self.endpoint.startsWith('https://')",
        lambda otlp: otlp.tls is not None and not otlp.endpoint.startswith("https://"),
    ),
)
