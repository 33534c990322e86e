"""The whole of telemetry against real OTLP collectors, over HTTP and gRPC, with TLS and without.

As the service composes it, and as vLLM sends its own spans, in the environment that both of them get.
"""

import asyncio
import importlib.metadata
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import grpc
import msgspec
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
from guided_contract.records import HttpRequest
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.pipeline import Telemetry
from support.collectors import Collector, GrpcCollector, HttpCollector, Tls, eventually

TRACE = "0af7651916cd43dd8448eb211c80319c"
ROOT = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{ROOT}-01"
TOKEN = "Bearer s3cr3t, and more"

Make = Callable[..., PodConfig]


class Pod(Telemetry):
    """All of a pod's telemetry, as the service composes it."""

    def __init__(self, config: PodConfig) -> None:
        os.environ.update(otel_variables.environment(config, os.environ))
        super().__init__(config, lambda _digests: None)


Start = Callable[[PodConfig], Awaitable[Pod]]


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

        def make(to: Collector | None, **telemetry: str) -> PodConfig:
            if to is not None:
                protocol = "GRPC" if isinstance(to, GrpcCollector) else "HTTP"
                telemetry = {"endpoint": to.endpoint, "protocol": protocol, **telemetry}
            return PodConfig(
                name="tiny",
                namespace="models",
                model="/models/tiny",
                tokenizer="/models/tiny",
                served_name="tiny-served",
                revision="5f0b02c75b57",
                tensor_parallel=2,
                run_dir=folder,
                bind_host="127.0.0.1",
                telemetry=TelemetryConfig(**telemetry),  # type: ignore[arg-type]  # texts all
            )

        yield make


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[Pod] = []

    async def begin(config: PodConfig) -> Pod:
        telemetry = Pod(config)
        started.append(telemetry)
        await telemetry.start()
        return telemetry

    yield begin
    for telemetry in started:
        await telemetry.stop(deadline_s=0)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture(params=[HttpCollector, GrpcCollector], ids=["HTTP", "GRPC"])
async def careful(request: pytest.FixtureRequest, authority: Authority) -> AsyncIterator[Collector]:
    """A collector that wants a certificate of its clients'."""
    server = authority.issue("server", "collector", hosts=["127.0.0.1"])
    made: Collector = request.param(unused_port(), Tls(server.certificate, server.key, authority.certificate))
    await made.start()
    yield made
    await made.stop()


def send(config: PodConfig, *sent: records.AnyRecord) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        for record in sent:
            client.sendto(records.encode(record), str(config.telemetry_socket))


def root(**changes: str) -> HttpRequest:
    now = time.time_ns()
    made = HttpRequest(
        trace_id=TRACE,
        span_id=ROOT,
        start_ns=now - 1000,
        end_ns=now,
        route="/v1/completions",
        status=200,
        kind="json",
    )
    return msgspec.structs.replace(made, **changes)


def vllm_span(config: PodConfig) -> None:
    """Export a span just as vLLM does: its own exporter, the SDK's provider and propagator."""
    provider = TracerProvider(resource=Resource.create({"vllm.process_id": "1"}))
    provider.add_span_processor(SimpleSpanProcessor(get_span_exporter(traces_url(config.telemetry))))
    context = TraceContextTextMapPropagator().extract({"traceparent": PARENT})
    with provider.get_tracer("vllm.llm_engine").start_as_current_span(
        "llm_request", context=context, kind=trace.SpanKind.SERVER
    ):
        pass
    provider.shutdown()


def metrics_of(telemetry: Pod, name: str) -> float:
    page = telemetry.metrics.render().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


async def test_every_span_tells_its_model_and_pod_and_what_the_environment_adds(
    collector: Collector, make: Make, start: Start
) -> None:
    os.environ["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = "k8s.node.name=worker-3,service.version=2026-11"
    config = make(collector)
    telemetry = await start(config)
    send(config, root())
    await asyncio.to_thread(vllm_span, config)
    await telemetry.stop()
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


async def test_certificates_and_headers_of_both_senders_arrive(
    careful: Collector, make: Make, start: Start, authority: Authority
) -> None:
    config = _secured(make, careful, authority)
    telemetry = await start(config)
    send(config, root())
    await telemetry.stop()
    assert careful.kept.headers["authorization"] == TOKEN
    await asyncio.to_thread(vllm_span, config)
    assert careful.kept.headers["authorization"] == TOKEN
    assert {span.name for span in careful.kept.spans} == {"POST /v1/completions", "llm_request"}


async def test_a_collector_of_another_authority_gets_nothing(
    careful: Collector, make: Make, start: Start, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    config = _secured(make, careful, authority, other.certificate)
    telemetry = await start(config)
    send(config, root())
    await telemetry.stop()
    assert (careful.kept.spans, careful.kept.headers) == ([], {})


def _secured(make: Make, to: Collector, authority: Authority, ca: Path | None = None) -> PodConfig:
    """Return a pod with the resource's variables: headers, and a certificate of ours."""
    client = authority.issue("client", "sidecar")
    words = {
        "ENDPOINT": to.endpoint,
        "CERTIFICATE": str(ca or authority.certificate),
        "CLIENT_CERTIFICATE": str(client.certificate),
        "CLIENT_KEY": str(client.key),
        "HEADERS": f"Authorization={quote(TOKEN)}",
    }
    os.environ.update({f"OTEL_EXPORTER_OTLP_{name}": word for name, word in words.items()})
    return make(to)


def _refuse(collector: Collector) -> None:
    if isinstance(collector, HttpCollector):
        collector.status = 400
    else:
        collector.code = grpc.StatusCode.INVALID_ARGUMENT


async def test_what_a_collector_refuses_is_counted_and_not_sent_again(
    collector: Collector, make: Make, start: Start
) -> None:
    _refuse(collector)
    config = make(collector)
    telemetry = await start(config)
    send(config, root())
    await eventually(lambda: metrics_of(telemetry, "guidedmodel_spans_dropped_total"))
    assert (metrics_of(telemetry, "guidedmodel_spans_dropped_total"), collector.requests) == (1, 1)


@pytest.mark.parametrize("protocol", ["HTTP", "GRPC"])
async def test_without_a_collector_the_end_comes_in_time(protocol: str, make: Make, start: Start) -> None:
    config = make(None, endpoint=f"http://127.0.0.1:{unused_port()}", protocol=protocol)
    telemetry = await start(config)
    for _ in range(2000):
        telemetry.tracer.start_span("grammar.prepare", spans.remote(PARENT)).end()
    begun_s = time.monotonic()
    await telemetry.stop(deadline_s=0.2)
    assert time.monotonic() - begun_s < 2


async def test_a_variable_that_the_sdk_does_not_take_costs_traces_and_nothing_else(
    collector: Collector, make: Make, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "-1"
    config = make(collector)
    telemetry = await start(config)
    send(config, root())
    await telemetry.stop()
    assert metrics_of(telemetry, "guidedmodel_requests_total") == 1
    assert "traces are off" in caplog.text
