"""What OpenTelemetry's variables say of traces: of the resource's `telemetry.endpoint` and `engine.env`.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from collections.abc import Mapping
from typing import Any

Environment = Mapping[str, str]


def is_disabled(env: Environment) -> bool:
    """Return whether no telemetry is to leave, whatever else is said."""
    return env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def exporter_word(env: Environment, name: str) -> str:
    """Return what is said for traces, else for all, "" where nothing is."""
    names = (f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}")
    return next((word for word in (env.get(each, "").strip() for each in names) if word), "")


def exporter(env: Environment) -> dict[str, Any]:
    """Return fields of TelemetryConfig, none where no endpoint is said: traces then stay off."""
    endpoint = exporter_word(env, "ENDPOINT")
    named = {word.strip().lower() for word in env.get("OTEL_TRACES_EXPORTER", "").split(",")}
    if not endpoint or not {"", "otlp"} & named:
        return {}
    return {
        "endpoint": endpoint,
        "protocol": "GRPC" if exporter_word(env, "PROTOCOL").lower() == "grpc" else "HTTP",
    }
