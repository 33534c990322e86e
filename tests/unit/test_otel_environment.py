"""OpenTelemetry's variables: what they say where the resource says nothing, and how spans are sent."""

from pathlib import Path

import pytest
from opentelemetry.sdk.trace.sampling import _KNOWN_SAMPLERS, _get_from_env_or_default

from guided_contract import config, names
from guided_contract.config import PodConfig, PortsConfig, TelemetryConfig
from guided_engine.cpus import Cpus
from guided_engine.launcher import command
from guided_sidecar import settings
from guided_sidecar.export_options import MOST_BATCH, USUAL, ExportOptions
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.pipeline import Instruments
from support.spans import MemorySpans, attributes

ENDPOINT = "http://collector:4318"
OTLP = "OTEL_EXPORTER_OTLP"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {}),
        ({f"{OTLP}_ENDPOINT": ENDPOINT}, {"endpoint": ENDPOINT}),
        ({f"{OTLP}_ENDPOINT": "http://x", f"{OTLP}_TRACES_ENDPOINT": ENDPOINT}, {"endpoint": ENDPOINT}),
        (
            {f"{OTLP}_ENDPOINT": ENDPOINT, f"{OTLP}_PROTOCOL": "grpc"},
            {"endpoint": ENDPOINT, "protocol": "GRPC"},
        ),
        (
            {
                f"{OTLP}_ENDPOINT": ENDPOINT,
                f"{OTLP}_PROTOCOL": "grpc",
                f"{OTLP}_TRACES_PROTOCOL": "http/protobuf",
            },
            {"endpoint": ENDPOINT},
        ),
        (
            {f"{OTLP}_ENDPOINT": ENDPOINT, f"{OTLP}_CERTIFICATE": "/ca", f"{OTLP}_TRACES_CLIENT_KEY": "/key"},
            {"endpoint": ENDPOINT, "ca_file": "/ca", "key_file": "/key"},
        ),
        ({f"{OTLP}_ENDPOINT": ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, {}),
        ({f"{OTLP}_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "True"}, {}),
        ({f"{OTLP}_PROTOCOL": "grpc"}, {}),
    ],
)
def test_the_environment_names_the_exporter_where_the_resource_has_none(
    env: dict[str, str], expected: dict[str, str]
) -> None:
    assert TelemetryConfig().within(env) == TelemetryConfig(**expected)


@pytest.mark.parametrize("name", ["ENDPOINT", "PROTOCOL", "CERTIFICATE"])
def test_the_resources_fields_win(name: str) -> None:
    said = TelemetryConfig(endpoint=ENDPOINT, protocol="GRPC", sampling=0.5)
    env = {f"{OTLP}_{name}": "grpc", f"{OTLP}_TRACES_{name}": "grpc", "OTEL_TRACES_SAMPLER": "always_off"}
    assert said.within(env) == said


def test_whoever_disables_the_sdk_has_no_traces() -> None:
    assert TelemetryConfig(endpoint=ENDPOINT).within({"OTEL_SDK_DISABLED": "true"}).endpoint is None


@pytest.mark.parametrize("argument", [None, "0.25", "no number", "7"])
@pytest.mark.parametrize("sampler", [*_KNOWN_SAMPLERS, "ALWAYS_OFF", "no sampler"])
def test_the_sampler_is_what_the_sdk_makes_of_the_same_words(
    sampler: str, argument: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"OTEL_TRACES_SAMPLER": sampler, **({"OTEL_TRACES_SAMPLER_ARG": argument} if argument else {})}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    theirs = _get_from_env_or_default().get_description().replace("root:", "").split(",")[0]
    expected = 0.0 if "AlwaysOff" in theirs else 0.25 if "0.25" in theirs else 1.0
    assert TelemetryConfig().within({f"{OTLP}_ENDPOINT": ENDPOINT, **env}).sampling == expected


def test_every_process_of_the_pod_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(config.encode(_pod()))
    monkeypatch.setenv(names.ENV_CONFIG, str(file))
    monkeypatch.setenv(f"{OTLP}_ENDPOINT", ENDPOINT)
    monkeypatch.setenv(f"{OTLP}_HEADERS", "authorization=Bearer%20x")
    read = settings.load()
    assert read.pod.telemetry.endpoint == ENDPOINT
    assert read.export.headers == {"authorization": "Bearer x"}


async def test_a_disabled_sdk_sends_nothing_and_prometheus_still_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(config.encode(_pod(TelemetryConfig(endpoint=ENDPOINT))))
    monkeypatch.setenv(names.ENV_CONFIG, str(file))
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    read = settings.load()
    instruments = Instruments(read.pod, export=read.export, metrics=read.metrics)
    assert (instruments.exporter, instruments.figures) == (None, None)
    instruments.tracer.start_span("grammar.load", spans.remote(None)).end()
    page = instruments.metrics.render().decode()
    assert 'guidedmodel_grammar_load_seconds_count{outcome="ok",rank="none"} 1.0' in page


def test_vllm_is_told_to_trace_where_the_environment_alone_says_so() -> None:
    told = _plan(_pod(telemetry=TelemetryConfig(endpoint=ENDPOINT)), "--port", "1")
    assert told.argv[-2:] == ("--otlp-traces-endpoint", "http://127.0.0.1:7/v1/traces")
    assert told.env["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf"
    by_operator = _plan(_pod(telemetry=TelemetryConfig(endpoint=ENDPOINT)), "--otlp-traces-endpoint", "x")
    assert by_operator.argv.count("--otlp-traces-endpoint") == 1
    assert "--otlp-traces-endpoint" not in _plan(_pod()).argv


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, USUAL),
        ({f"{OTLP}_TIMEOUT": "2500"}, ExportOptions(timeout_s=2.5)),
        ({f"{OTLP}_TIMEOUT": "1", f"{OTLP}_TRACES_TIMEOUT": "300"}, ExportOptions(timeout_s=0.3)),
        ({f"{OTLP}_COMPRESSION": "none"}, ExportOptions(gzip=False)),
        ({f"{OTLP}_COMPRESSION": "gzip"}, USUAL),
        ({f"{OTLP}_HEADERS": "a=1,B=x%2Cy"}, ExportOptions(headers={"a": "1", "b": "x,y"})),
        (
            {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "64"},
            ExportOptions(flush_s=0.2, batch_spans=64),
        ),
        ({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100000"}, ExportOptions(batch_spans=MOST_BATCH)),
        ({"OTEL_BSP_SCHEDULE_DELAY": "soon", f"{OTLP}_TIMEOUT": "-1"}, USUAL),
        ({"OTEL_BSP_SCHEDULE_DELAY": "nan", f"{OTLP}_TIMEOUT": "0"}, USUAL),
    ],
)
def test_how_spans_are_sent(env: dict[str, str], expected: ExportOptions) -> None:
    assert ExportOptions.of({f"{OTLP}_ENDPOINT": ENDPOINT, **env}, ENDPOINT) == expected


def test_a_token_for_one_collector_goes_to_no_other() -> None:
    env = {f"{OTLP}_ENDPOINT": "http://platform:4318", f"{OTLP}_HEADERS": "authorization=x"}
    assert ExportOptions.of(env, ENDPOINT).headers == {}


def test_limits_are_the_sdks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3")
    made = MemorySpans()
    made.tracer.start_span("x", spans.ALWAYS, attributes={"a": "12345"}).end()
    assert attributes(made.finished[0]) == {"a": "123"}


def _pod(telemetry: TelemetryConfig = TelemetryConfig()) -> PodConfig:  # noqa: B008 - it is frozen
    named = {"name": "m", "model": "m", "tokenizer": "m", "served_name": "m"}
    return PodConfig(**named, run_dir="/run", ports=PortsConfig(otlp=7), telemetry=telemetry)


def _plan(pod: PodConfig, *args: str) -> command.EngineCommand:
    return command.plan(pod, args, {}, Cpus((0, 1)), ("vllm",))
