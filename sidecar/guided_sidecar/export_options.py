"""How spans and metrics are sent, where the resource has no field for it: OpenTelemetry's variables."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from msgspec.structs import replace
from opentelemetry.util.re import parse_env_headers

from guided_contract.config import TelemetryConfig
from guided_contract.otel_environment import Environment, exporter, exporter_word, exporters, is_disabled

MOST_BATCH: Final = 512  # spans; the SDK's own default
_MOST_S: Final = 600.0
_MS: Final = 1000  # the specification's unit of durations
_DELAY: Final = "OTEL_BSP_SCHEDULE_DELAY"
_BATCH: Final = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What every export has in common.

    Parameters
    ----------
    headers
        Of each request, their names in lower case; those of the resource's Secret win.
    timeout_s
        Of one request.
    gzip
        Whether bodies are compressed, which every OTLP receiver has to understand.
    batch_spans, flush_s
        So many spans are sent at once, or those that have waited so long.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    gzip: bool = True
    batch_spans: int = 32  # 0.1 ms each to encode, for which the event loop stands still
    flush_s: float = 0.5

    @classmethod
    def of(cls, env: Environment, endpoint: str | None, signal: str = "TRACES") -> Self:
        """Return what the environment says; what is no such value is as if unset, and logged.

        Its headers are for the collector that it names, and go to no other `endpoint`.
        """
        usual = cls()
        is_theirs = endpoint is not None and endpoint == exporter_word(env, "ENDPOINT", signal)
        headers = exporter_word(env, "HEADERS", signal) if is_theirs else ""
        delay = _number(_DELAY, env.get(_DELAY, ""))
        timeout = _number("OTEL_EXPORTER_OTLP_TIMEOUT", exporter_word(env, "TIMEOUT", signal))
        batch = _number(_BATCH, env.get(_BATCH, ""))
        return cls(
            headers=parse_env_headers(headers, liberal=True),
            timeout_s=min(timeout / _MS, _MOST_S) or usual.timeout_s,
            gzip=exporter_word(env, "COMPRESSION", signal).lower() != "none",
            batch_spans=min(int(batch), MOST_BATCH) or usual.batch_spans,
            flush_s=min(delay / _MS, _MOST_S) or usual.flush_s,
        )


USUAL: Final = ExportOptions()


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """Where figures are sent, beside the page for Prometheus, and how often."""

    to: TelemetryConfig
    export: ExportOptions
    interval_s: float

    @classmethod
    def of(cls, env: Environment, telemetry: TelemetryConfig) -> Self | None:
        """Return what the environment asks for, of the resource's collector or its own; None: nothing."""
        if "otlp" not in exporters(env, "METRICS") or is_disabled(env):
            return None
        if telemetry.endpoint in {None, exporter_word(env, "ENDPOINT")}:
            telemetry = replace(telemetry, **exporter(env, "METRICS"))
        if telemetry.endpoint is None:
            _log.warning("OTEL_METRICS_EXPORTER asks for OTLP, and nothing names a collector")
            return None
        interval = min(_number(_INTERVAL, env.get(_INTERVAL, "")) / _MS, _MOST_S)
        return cls(telemetry, ExportOptions.of(env, telemetry.endpoint, "METRICS"), interval or 60.0)


def _number(name: str, word: str) -> float:
    """Return a number above zero, 0 where the word is none."""
    try:
        value = float(word or 0)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value >= 0:
        return value
    _log.warning("%s is no number that can be used: %s", name, word[:40])
    return 0.0
