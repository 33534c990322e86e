"""OpenTelemetry's variables: what they say where the resource says nothing, and how spans are sent."""

import os
from pathlib import Path
from unittest import mock

import pytest

from guided_contract import config, names
from guided_contract.config import PodConfig, TelemetryConfig
from guided_engine.cpus import Cpus
from guided_engine.launcher import command
from guided_sidecar import settings
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.pipeline import Telemetry

ENDPOINT = "http://collector:4318"
OTLP = "OTEL_EXPORTER_OTLP"
HERE = {f"{OTLP}_ENDPOINT": ENDPOINT}
GRPC = {f"{OTLP}_PROTOCOL": "grpc"}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {}),
        (HERE, {"endpoint": ENDPOINT}),
        ({f"{OTLP}_ENDPOINT": "http://x", f"{OTLP}_TRACES_ENDPOINT": ENDPOINT}, {"endpoint": ENDPOINT}),
        (HERE | GRPC, {"endpoint": ENDPOINT, "protocol": "GRPC"}),
        (HERE | GRPC | {f"{OTLP}_TRACES_PROTOCOL": "http/protobuf"}, {"endpoint": ENDPOINT}),
        (HERE | {"OTEL_TRACES_EXPORTER": "none"}, {}),
        (HERE | {"OTEL_SDK_DISABLED": "True"}, {}),
    ],
)
def test_the_environment_names_the_exporter_where_the_resource_has_none(
    env: dict[str, str], expected: dict[str, str]
) -> None:
    assert TelemetryConfig().within(env) == TelemetryConfig(**expected)


@pytest.mark.parametrize("name", ["ENDPOINT", "PROTOCOL", "CERTIFICATE"])
def test_the_resources_fields_win(name: str) -> None:
    said = TelemetryConfig(endpoint=ENDPOINT, protocol="GRPC", sampling=0.5)
    env = {f"{OTLP}_{name}": "grpc", f"{OTLP}_TRACES_{name}": "grpc"}
    assert said.within(env) == said


async def test_a_disabled_sdk_sends_nothing_and_prometheus_still_reads(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(config.encode(_pod()))
    with mock.patch.dict(os.environ, HERE | {names.ENV_CONFIG: str(file)}):
        assert settings.load().pod.telemetry.endpoint == ENDPOINT
    with mock.patch.dict(os.environ, HERE | {names.ENV_CONFIG: str(file), "OTEL_SDK_DISABLED": "true"}):
        pod = settings.load().pod
        assert "OTEL_SDK_DISABLED" not in os.environ, "the SDK would make no spans"
    telemetry = Telemetry(pod, lambda _digests: None)
    telemetry.tracer.start_span("grammar.load", spans.remote(None)).end()
    page = telemetry.metrics.render().decode()
    assert 'guidedmodel_grammar_load_seconds_count{outcome="ok",rank="none"} 1.0' in page
    assert "guidedmodel_spans_exported" not in page


@pytest.mark.parametrize("path", ["", "/", "/v1/traces"])
def test_vllm_sends_to_the_same_collector(path: str) -> None:
    told = _plan(_pod(telemetry=TelemetryConfig(endpoint=ENDPOINT + path)))
    assert told.argv[-2:] == ("--otlp-traces-endpoint", f"{ENDPOINT}/v1/traces")
    assert told.env["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf"
    told = _plan(_pod(telemetry=TelemetryConfig(endpoint=ENDPOINT, protocol="GRPC")))
    assert told.argv[-2:] == ("--otlp-traces-endpoint", ENDPOINT)
    assert told.env["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "grpc"
    assert "--otlp-traces-endpoint" not in _plan(_pod()).argv


def test_vllms_exit_waits_seconds_for_a_collector_that_is_silent() -> None:
    name = f"{OTLP}_TIMEOUT"
    pod = _pod(telemetry=TelemetryConfig(endpoint=ENDPOINT))
    assert _plan(pod).env[name] == "3"
    said = command.plan(pod, (), {f"{OTLP}_TIMEOUT": "8"}, Cpus(2))
    assert said.env[name] == "8"


def _pod(telemetry: TelemetryConfig = TelemetryConfig()) -> PodConfig:  # noqa: B008 - it is frozen
    named = {"name": "m", "model": "m", "tokenizer": "m", "served_name": "m"}
    return PodConfig(**named, run_dir="/run", telemetry=telemetry)


def _plan(pod: PodConfig, *args: str) -> command.EngineCommand:
    return command.plan(pod, args, {}, Cpus(2))
