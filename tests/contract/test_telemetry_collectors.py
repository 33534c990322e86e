"""The whole of telemetry against real OTLP collectors, over HTTP and gRPC, with TLS and without.

As the service composes it, and as vLLM sends its own spans, in the environment that both of them get.
"""

import asyncio
import contextlib
import importlib.metadata
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest
from aiohttp.test_utils import unused_port
from devtools.pki import Authority
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from vllm.tracing.otel import get_span_exporter

from guided_contract import otel_variables, records
from guided_contract.config import PodConfig, TelemetryConfig
from guided_contract.otel_variables import traces_url
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.pipeline import Telemetry
from support.collectors import Collector, GrpcCollector, HttpCollector, Tls, eventually
from support.engine import pod_config
from support.monitored import request

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TOKEN = "Bearer s3cr3t, and more"
Make = Callable[..., PodConfig]


@pytest.fixture(autouse=True)
def environ() -> Iterator[None]:
    before = dict(os.environ)
    os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "50"
    for name in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):  # over HTTP they win: docs/telemetry.md
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def make() -> Iterator[Make]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path is at most 107 bytes

        def make(endpoint: str, protocol: str) -> PodConfig:
            telemetry = TelemetryConfig(endpoint=endpoint, protocol=protocol)  # type: ignore[arg-type]
            named = {"name": "tiny", "namespace": "models", "served_name": "tiny-served"}
            return pod_config(Path(folder), **named, revision="5f0b02c75b57", telemetry=telemetry)

        yield make


@contextlib.asynccontextmanager
async def running(config: PodConfig) -> AsyncIterator[Telemetry]:
    """Run all of a pod's telemetry, as the service composes it; at the end it has sent what it has."""
    os.environ.update(otel_variables.environment(config, os.environ))
    telemetry = Telemetry(config, lambda _digests: None)
    await telemetry.start()
    try:
        yield telemetry
    finally:
        await telemetry.stop()


def send(config: PodConfig) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(records.encode(request()), str(config.telemetry_socket))


def vllm_span(config: PodConfig) -> None:
    """Export a span just as vLLM does: its own exporter, the SDK's provider and propagator."""
    provider = TracerProvider(resource=Resource.create({"vllm.process_id": "1"}))
    provider.add_span_processor(SimpleSpanProcessor(get_span_exporter(traces_url(config.telemetry))))
    context = TraceContextTextMapPropagator().extract({"traceparent": PARENT})
    tracer = provider.get_tracer("vllm.llm_engine")
    with tracer.start_as_current_span("llm_request", context=context, kind=trace.SpanKind.SERVER):
        pass
    provider.shutdown()


def metrics_of(telemetry: Telemetry, name: str) -> float:
    page = telemetry.metrics.render().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


async def test_every_span_tells_its_model_and_pod_and_what_the_environment_adds(
    collector: Collector, make: Make
) -> None:
    os.environ["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = "k8s.node.name=worker-3,service.version=2026-11"
    config = make(collector.endpoint, collector.protocol)
    async with running(config):
        send(config)
        await asyncio.to_thread(vllm_span, config)
    assert {span.name for span in collector.kept.spans} == {"POST /v1/completions", "llm_request"}
    expected = {
        "service.name": "tiny",
        "service.instance.id": socket.gethostname(),
        "service.version": "2026-11",
        "k8s.pod.name": socket.gethostname(),
        "k8s.namespace.name": "models",
        "k8s.node.name": "worker-3",
        "guidedmodel.served_name": "tiny-served",
        "guidedmodel.model.revision": "5f0b02c75b57",
        "telemetry.sdk.version": importlib.metadata.version("opentelemetry-sdk"),
    }
    for span in collector.kept.spans:
        assert expected.items() <= span.resource.items()
        assert span.resource["guidedmodel.vllm.version"].startswith("0.")


@pytest.mark.parametrize("kind", [HttpCollector, GrpcCollector], ids=["HTTP", "GRPC"])
async def test_certificates_and_headers_of_both_senders_arrive_where_the_authority_is_ours(
    kind: type[Collector], make: Make, tmp_path: Path
) -> None:
    ours, other = Authority(tmp_path / "pki"), Authority(tmp_path / "other")
    server = ours.issue("server", "collector", hosts=["127.0.0.1"])
    client = ours.issue("client", "sidecar")
    careful = kind(unused_port(), Tls(server.certificate, server.key, ours.certificate))
    await careful.start()
    for authority in (other, ours):
        words = {
            "ENDPOINT": careful.endpoint,
            "CERTIFICATE": str(authority.certificate),
            "CLIENT_CERTIFICATE": str(client.certificate),
            "CLIENT_KEY": str(client.key),
            "HEADERS": f"Authorization={quote(TOKEN)}",
        }
        os.environ.update({f"OTEL_EXPORTER_OTLP_{name}": word for name, word in words.items()})
        config = make(careful.endpoint, careful.protocol)
        async with running(config):
            send(config)
        if authority is other:
            assert (careful.kept.spans, careful.kept.headers) == ([], {})
    assert careful.kept.headers.pop("authorization") == TOKEN
    await asyncio.to_thread(vllm_span, config)
    assert careful.kept.headers["authorization"] == TOKEN
    assert {span.name for span in careful.kept.spans} == {"POST /v1/completions", "llm_request"}
    await careful.stop()


async def test_what_a_collector_refuses_is_counted_and_not_sent_again(
    collector: Collector, make: Make
) -> None:
    if isinstance(collector, HttpCollector):
        collector.status = 400
    else:
        collector.code = grpc.StatusCode.INVALID_ARGUMENT
    config = make(collector.endpoint, collector.protocol)
    async with running(config) as telemetry:
        send(config)
        await eventually(lambda: metrics_of(telemetry, "guidedmodel_spans_dropped_total"))
    assert (metrics_of(telemetry, "guidedmodel_spans_dropped_total"), collector.requests) == (1, 1)


@pytest.mark.parametrize("protocol", ["HTTP", "GRPC"])
async def test_without_a_collector_the_end_comes_in_time(protocol: str, make: Make) -> None:
    async with running(make(f"http://127.0.0.1:{unused_port()}", protocol)) as telemetry:
        for _ in range(2000):
            telemetry.tracer.start_span("grammar.prepare", spans.remote(PARENT)).end()
        begun_s = time.monotonic()
        await telemetry.stop(deadline_s=0.2)
        assert time.monotonic() - begun_s < 2


async def test_a_variable_that_the_sdk_does_not_take_costs_traces_and_nothing_else(
    collector: Collector, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "-1"
    config = make(collector.endpoint, collector.protocol)
    async with running(config) as telemetry:
        send(config)
    assert metrics_of(telemetry, "guidedmodel_requests_total") == 1
    assert "traces are off" in caplog.text
