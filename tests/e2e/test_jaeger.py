"""A request's trace in a real Jaeger 2, which runs with our manifest's configuration."""

import os
import tempfile
import time
import urllib.error
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from devtools import golang, node_init
from devtools.process import Process, free_ports

from guided_contract import otel_variables, records
from guided_contract.config import PodConfig, TelemetryConfig
from guided_contract.records import HttpRequest
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.pipeline import Instruments, Telemetry
from support import jaeger
from support.cluster import unavailable
from support.collectors import eventually
from support.monitored import decode

TRACE, ROOT, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"


class Jaeger(NamedTuple):
    query: str
    otlp: dict[str, str]  # by protocol


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    try:
        program = golang.jaeger() / "jaeger"
    except golang.MissingToolError as error:
        unavailable(error)
    folder = tmp_path_factory.mktemp("jaeger")
    query, grpc, http = free_ports(3)
    settings = folder / "config.yaml"
    settings.write_text(node_init.jaeger_settings())
    places = {
        "receivers.otlp.protocols.grpc.endpoint": grpc,
        "receivers.otlp.protocols.http.endpoint": http,
        "extensions.jaeger_query.http.endpoint": query,
    }
    # The query service's gRPC port is no place of the manifest's, and may be taken here.
    flags = [f"--set={place}=127.0.0.1:{port}" for place, port in places.items()]
    flags.append("--set=extensions.jaeger_query.grpc.endpoint=127.0.0.1:0")
    process = Process.start("jaeger", [program, f"--config={settings}", *flags], folder / "jaeger.log")
    try:
        yield Jaeger(
            f"http://127.0.0.1:{query}",
            {"HTTP": f"http://127.0.0.1:{http}", "GRPC": f"http://127.0.0.1:{grpc}"},
        )
        assert process.is_running(), (folder / "jaeger.log").read_text()[-2000:]
    finally:
        process.stop()


def _found(url: str, since_s: float, service: str) -> list[jaeger.Trace]:
    try:
        return jaeger.traces(url, service, since_s)
    except urllib.error.URLError:
        return []  # it does not listen yet


@pytest.mark.parametrize("protocol", ["HTTP", "GRPC"])
async def test_a_trace_is_what_we_sent(
    running: Jaeger, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_s, now = time.time() - 1, time.time_ns()
    service = f"tiny-{protocol.lower()}"
    trace_id = TRACE[:-2] + ("01" if protocol == "HTTP" else "02")
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path is at most 107 bytes
        named = {"name": service, "model": "m", "tokenizer": "m", "served_name": "m", "run_dir": folder}
        config = PodConfig(
            **named,
            telemetry=TelemetryConfig(endpoint=running.otlp[protocol], protocol=protocol),  # type: ignore[arg-type]  # HTTP or GRPC
        )
        for name, value in otel_variables.environment(config, os.environ).items():
            monkeypatch.setenv(name, value)
        instruments = Instruments(config)
        telemetry = Telemetry(config, instruments, lambda _digests: None)
        await telemetry.start()
        telemetry._records._take(_request(trace_id, now))
        telemetry._decodes.add(decode(traceparent=f"00-{trace_id}-{ROOT}-03", end_ns=now, start_ns=now - 9))
        waiting = instruments.tracer.start_span("grammar.prepare", spans.remote(f"00-{trace_id}-{ROOT}-03"))
        spans.end(waiting, error_code="grammar_invalid")
        await eventually(lambda: _found(running.query, began_s, service), deadline_s=60)
        await telemetry.stop()
    [trace] = _found(running.query, began_s, service)
    assert trace.trace_id == trace_id
    [root] = trace.named("POST /v1/chat/completions")
    assert root.parents == (CALLER,)
    assert root.tags["span.kind"] == "server"
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.usage.input_tokens": 7,
        "http.response.status_code": 200,
        "server.address": "models.example",
        "server.port": 8000,
    }.items() <= root.tags.items()
    [refused] = trace.named("grammar.prepare")
    assert refused.parents == (ROOT,)
    assert refused.tags["error.type"] == "grammar_invalid"
    assert refused.tags["error"] is True


def _request(trace_id: str, now: int) -> bytes:
    return records.encode(
        HttpRequest(
            trace_id=trace_id,
            span_id=ROOT,
            parent_span_id=CALLER,
            flags=3,
            tracestate="vendor=x",
            start_ns=now - 1000,
            end_ns=now,
            method="POST",
            route="/v1/chat/completions",
            status=200,
            kind="json",
            model="tiny",
            server_address="models.example",
            server_port=8000,
            input_tokens=7,
            output_tokens=5,
            finish_reasons=["stop"],
        )
    )
