"""What OpenTelemetry's variables say of traces, where the resource's `telemetry.otlp` is not set.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from collections.abc import Mapping
from typing import Any

Environment = Mapping[str, str]


def is_disabled(env: Environment) -> bool:
    """Return whether no telemetry is to leave, whatever else is said."""
    return env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def exporter_word(env: Environment, name: str, signal: str = "TRACES") -> str:
    """Return what is said for one signal, else for all, "" where nothing is."""
    names = (f"OTEL_EXPORTER_OTLP_{signal}_{name}", f"OTEL_EXPORTER_OTLP_{name}")
    return next((word for word in (env.get(each, "").strip() for each in names) if word), "")


def exporters(env: Environment, signal: str) -> frozenset[str]:
    """Return which exporters are named for a signal, "" where none is."""
    return frozenset(word.strip().lower() for word in env.get(f"OTEL_{signal}_EXPORTER", "").split(","))


def exporter(env: Environment) -> dict[str, Any]:
    """Return fields of TelemetryConfig, none where no endpoint is said: traces then stay off."""
    endpoint = exporter_word(env, "ENDPOINT")
    if not endpoint or not {"", "otlp"} & exporters(env, "TRACES"):
        return {}
    return {
        "endpoint": endpoint,
        "protocol": "GRPC" if exporter_word(env, "PROTOCOL").lower() == "grpc" else "HTTP",
    }
