"""The whole of telemetry against real OTLP collectors, over HTTP and gRPC, as the service composes it."""

import asyncio
import gzip
import importlib.metadata
import io
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Literal

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import unused_port
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanKind
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from guided_contract import records
from guided_contract.config import PodConfig, PortsConfig, TelemetryConfig
from guided_contract.records import Decode, HttpRequest
from guided_sidecar.telemetry import spans
from guided_sidecar.telemetry.otlp_receiver import BODY_BYTES
from guided_sidecar.telemetry.pipeline import Instruments, Telemetry
from support.collectors import Collector, GrpcCollector, HttpCollector, eventually

TRACE = "0af7651916cd43dd8448eb211c80319c"
ROOT = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{ROOT}-01"
PROTOBUF = {"Content-Type": "application/x-protobuf"}

Protocol = Literal["HTTP", "GRPC"]
MakeConfig = Callable[[str | None, Protocol], PodConfig]


class Pod(Telemetry):
    """All of a pod's telemetry, as the service composes it."""

    def __init__(self, config: PodConfig) -> None:
        instruments = Instruments(config, pod="tiny-0")
        super().__init__(config, instruments, lambda _digests: None)
        self.tracer = instruments.tracer
        self.metrics = instruments.metrics


Start = Callable[[PodConfig], Awaitable[Pod]]


@pytest.fixture
def make_config() -> Iterator[MakeConfig]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path is at most 107 bytes

        def make(endpoint: str | None, protocol: Protocol) -> PodConfig:
            return PodConfig(
                name="tiny",
                namespace="models",
                model="/models/tiny",
                tokenizer="/models/tiny",
                served_name="tiny-served",
                tensor_parallel=2,
                run_dir=folder,
                bind_host="127.0.0.1",
                ports=PortsConfig(otlp=unused_port()),
                telemetry=TelemetryConfig(endpoint=endpoint, protocol=protocol),
            )

        yield make


@pytest.fixture(params=["HTTP", "GRPC"])
async def collector(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Collector, Protocol]]:
    kind = HttpCollector if request.param == "HTTP" else GrpcCollector
    made: Collector = kind(unused_port())
    await made.start()
    yield made, request.param
    await made.stop()


@pytest.fixture
async def http() -> AsyncIterator[HttpCollector]:
    made = HttpCollector(unused_port())
    await made.start()
    yield made
    await made.stop()


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
        method="POST",
        route="/v1/completions",
        status=200,
        kind="json",
    )
    return msgspec.structs.replace(made, **changes)


def decode(rank: int) -> Decode:
    return Decode(
        request_id="r",
        traceparent=PARENT,
        rank=rank,
        grammar_key="k",
        backend="xgrammar",
        start_ns=1,
        end_ns=2,
        tokens=7,
    )


def vllm_span(config: PodConfig, *, compression: Compression = Compression.NoCompression) -> None:
    """Export a span just as vLLM does: the SDK's own exporter, provider and propagator, in another thread."""
    endpoint = f"http://127.0.0.1:{config.ports.otlp}/v1/traces"
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, compression=compression)))
    context = TraceContextTextMapPropagator().extract({"traceparent": PARENT})
    with provider.get_tracer("vllm.llm_engine").start_as_current_span(
        "llm_request", context=context, kind=trace.SpanKind.SERVER
    ) as span:
        span.set_attribute("gen_ai.usage.completion_tokens", 7)
    provider.shutdown()


def metrics_of(telemetry: Pod, name: str) -> float:
    page = telemetry.metrics.render().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


async def test_one_request_is_one_trace(
    collector: tuple[Collector, Protocol], make_config: MakeConfig, start: Start
) -> None:
    there, protocol = collector
    config = make_config(there.endpoint, protocol)
    telemetry = await start(config)
    prepare = telemetry.tracer.start_span("grammar.prepare", spans.remote(PARENT))
    compiled = telemetry.tracer.start_span("grammar.compile", spans.below(prepare))
    compiled.add_event("something", {"n": 1})
    compiled.end()
    prepare.add_link(spans.parent_of(spans.remote(f"00-{'e' * 32}-{'f' * 16}-01")))
    prepare.end()
    send(config, decode(0), decode(1), root())
    await asyncio.to_thread(vllm_span, config)
    await eventually(lambda: len(there.kept.spans) == 5)
    await telemetry.stop()

    (top,) = there.kept.named("POST /v1/completions")
    assert (top.trace_id, top.span_id, top.parent_span_id) == (TRACE, ROOT, "")
    assert top.attributes["http.response.status_code"] == 200
    assert {span.trace_id for span in there.kept.spans} == {TRACE}
    children = {span.name for span in there.kept.spans if span.parent_span_id == ROOT}
    assert children == {"grammar.prepare", "guided.decode", "llm_request"}
    assert [span.name for span in there.kept.spans if span.kind == SpanKind.SPAN_KIND_SERVER] == [top.name]
    (vllms,) = there.kept.named("llm_request")
    assert vllms.attributes == {"gen_ai.usage.output_tokens": 7}
    (compiling,) = there.kept.named("grammar.compile")
    (preparing,) = there.kept.named("grammar.prepare")
    assert compiling.parent_span_id == preparing.span_id
    assert (compiling.flags, preparing.flags) == (0x101, 0x301)
    assert compiling.events == [("something", {"n": 1})]
    assert preparing.links == [("e" * 32, "f" * 16)]
    (decoded,) = there.kept.named("guided.decode")
    assert decoded.attributes["guidedmodel.decode.ranks"] == 2
    assert metrics_of(telemetry, "guidedmodel_spans_exported_total") == 5


async def test_every_span_tells_its_model_and_pod(
    collector: tuple[Collector, Protocol], make_config: MakeConfig, start: Start
) -> None:
    there, protocol = collector
    config = make_config(there.endpoint, protocol)
    telemetry = await start(config)
    send(config, root())
    await asyncio.to_thread(vllm_span, config)
    await telemetry.stop()
    assert len(there.kept.spans) == 2
    for span in there.kept.spans:
        assert span.resource["service.name"] == "tiny"
        assert span.resource["k8s.pod.name"] == "tiny-0"
        assert span.resource["k8s.namespace.name"] == "models"
        assert span.resource["guidedmodel.served_name"] == "tiny-served"


async def test_a_span_tells_whether_its_parent_is_of_another_process(
    make_config: MakeConfig, start: Start, http: HttpCollector
) -> None:
    config = make_config(http.endpoint, "HTTP")
    telemetry = await start(config)
    send(config, root(), decode(0), decode(1), root(span_id="c" * 16, parent_span_id="00f067aa0ba902b7"))
    await telemetry.stop()
    flags = {(span.name, span.parent_span_id): span.flags for span in http.kept.spans}
    assert flags == {
        ("POST /v1/completions", ""): 0x103,
        ("POST /v1/completions", "00f067aa0ba902b7"): 0x301,
        ("guided.decode", ROOT): 0x301,
    }


async def test_the_callers_tracestate_stays_with_its_trace(
    make_config: MakeConfig, start: Start, http: HttpCollector
) -> None:
    config = make_config(http.endpoint, "HTTP")
    telemetry = await start(config)
    state = "ot=th:8,vendor=x"
    with_state = msgspec.structs.replace(decode(0), tracestate=state)
    send(config, with_state, msgspec.structs.replace(with_state, rank=1))
    send(config, root(parent_span_id="00f067aa0ba902b7", tracestate=state))
    await telemetry.stop()
    assert [span.trace_state for span in http.kept.spans] == [state, state]


async def test_the_resource_tells_versions_and_what_the_environment_adds(
    make_config: MakeConfig, start: Start, http: HttpCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.node.name=worker-3,service.version=2026-11")
    config = msgspec.structs.replace(make_config(http.endpoint, "HTTP"), revision="5f0b02c75b57")
    telemetry = await start(config)
    send(config, root())
    await asyncio.to_thread(vllm_span, config)
    await telemetry.stop()
    ours, vllms = (http.kept.named(name)[0].resource for name in ("POST /v1/completions", "llm_request"))
    assert ours["telemetry.sdk.name"] == "opentelemetry"
    assert ours["telemetry.sdk.language"] == "python"
    assert ours["telemetry.sdk.version"] == importlib.metadata.version("opentelemetry-sdk")
    for told in (ours, vllms):
        assert told["k8s.node.name"] == "worker-3"
        assert told["service.version"] == "2026-11"
        assert told["guidedmodel.model.revision"] == "5f0b02c75b57"
        assert told["guidedmodel.vllm.version"].startswith("0.")


async def test_the_services_version_is_ours_unless_told_otherwise(
    make_config: MakeConfig, start: Start, http: HttpCollector
) -> None:
    config = make_config(http.endpoint, "HTTP")
    telemetry = await start(config)
    send(config, root())
    await telemetry.stop()
    assert http.kept.spans[0].resource["service.version"] == importlib.metadata.version("guidedmodel")


@pytest.mark.parametrize("protocol", ["HTTP", "GRPC"])
async def test_spans_wait_for_a_collector_that_starts_late(
    protocol: Protocol, make_config: MakeConfig, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    port = unused_port()
    config = make_config(f"http://127.0.0.1:{port}", protocol)
    telemetry = await start(config)
    send(config, root())
    await asyncio.to_thread(vllm_span, config)
    await eventually(lambda: "does not take spans" in caplog.text)
    late: Collector = HttpCollector(port) if protocol == "HTTP" else GrpcCollector(port)
    await late.start()
    await eventually(lambda: len(late.kept.spans) == 2, deadline_s=20)
    await telemetry.stop()
    await late.stop()
    assert metrics_of(telemetry, "guidedmodel_spans_dropped_total") == 0


@pytest.mark.parametrize("protocol", ["HTTP", "GRPC"])
async def test_without_a_collector_losses_are_counted(
    protocol: Protocol, make_config: MakeConfig, start: Start
) -> None:
    config = make_config(f"http://127.0.0.1:{unused_port()}", protocol)
    telemetry = await start(config)
    for _ in range(2000):
        telemetry.tracer.start_span("grammar.prepare", spans.remote(PARENT)).end()
    await asyncio.to_thread(vllm_span, config)
    await telemetry.stop(deadline_s=0.2)
    assert metrics_of(telemetry, "guidedmodel_spans_dropped_total") == 2001


async def test_a_collector_that_never_answers_keeps_the_queue_bounded(
    make_config: MakeConfig, start: Start
) -> None:
    async def mute(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent.append(writer)

    silent: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    config = make_config(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "HTTP")
    telemetry = await start(config)
    large = ExportTraceServiceRequest()
    large.resource_spans.add().scope_spans.add().spans.add(name="x" * (BODY_BYTES - 1000))
    async with aiohttp.ClientSession() as session:
        for _ in range(8):
            async with session.post(
                f"http://127.0.0.1:{config.ports.otlp}/v1/traces",
                data=io.BytesIO(large.SerializeToString()),
                headers=PROTOBUF,
            ) as response:
                assert response.status == 200
    await telemetry.stop(deadline_s=0.2)
    assert metrics_of(telemetry, 'guidedmodel_spans_dropped_total{reason="queue_full"') == 4
    assert metrics_of(telemetry, 'guidedmodel_spans_dropped_total{reason="shutdown"') == 4
    for writer in silent:
        writer.close()
    server.close()


@pytest.mark.parametrize("endpoint", ["collector:4318", "http://no..name:4318", "http://nowhere.invalid:1"])
@pytest.mark.parametrize("protocol", ["HTTP", "GRPC"])
async def test_an_endpoint_that_is_none_costs_spans_and_nothing_else(
    endpoint: str, protocol: Protocol, make_config: MakeConfig, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = await start(make_config(endpoint, protocol))
    telemetry.tracer.start_span("grammar.prepare", spans.remote(PARENT)).end()
    await eventually(lambda: "does not take spans" in caplog.text)
    await telemetry.stop(deadline_s=0)
    assert metrics_of(telemetry, "guidedmodel_spans_dropped_total") == 1


async def test_what_is_pending_is_sent_at_the_end(
    collector: tuple[Collector, Protocol], make_config: MakeConfig, start: Start
) -> None:
    there, protocol = collector
    config = make_config(there.endpoint, protocol)
    telemetry = await start(config)
    send(config, root())
    telemetry.tracer.start_span("grammar.load", spans.remote(PARENT)).end()
    await telemetry.stop()
    assert {span.name for span in there.kept.spans} == {"POST /v1/completions", "grammar.load"}


async def test_with_traces_off_records_are_counted_and_vllm_is_answered(
    make_config: MakeConfig, start: Start
) -> None:
    config = make_config(None, "HTTP")
    telemetry = await start(config)
    send(config, root())
    await asyncio.to_thread(vllm_span, config)
    await telemetry.stop()
    assert metrics_of(telemetry, "guidedmodel_requests_total") == 1


async def test_vllm_may_compress(make_config: MakeConfig, start: Start) -> None:
    there = HttpCollector(unused_port())
    await there.start()
    config = make_config(there.endpoint, "HTTP")
    telemetry = await start(config)
    await asyncio.to_thread(vllm_span, config, compression=Compression.Gzip)
    await telemetry.stop()
    await there.stop()
    assert [span.name for span in there.kept.spans] == ["llm_request"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"garbage", PROTOBUF, 400),
        (b"garbage", PROTOBUF | {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(b"x" * 100, mtime=0)[:-10], PROTOBUF | {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(bytes(BODY_BYTES + 1), mtime=0), PROTOBUF | {"Content-Encoding": "gzip"}, 413),
        (bytes(BODY_BYTES + 1), PROTOBUF, 413),
        (b"x", PROTOBUF | {"Content-Encoding": "br"}, 415),
        (b"{}", {"Content-Type": "application/json"}, 415),
    ],
)
async def test_what_is_no_trace_is_refused(
    make_config: MakeConfig, start: Start, body: bytes, headers: dict[str, str], status: int
) -> None:
    config = make_config(None, "HTTP")
    telemetry = await start(config)
    url = f"http://127.0.0.1:{config.ports.otlp}/v1/traces"
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            url, data=io.BytesIO(body), headers=headers, skip_auto_headers=["Content-Encoding"]
        ) as response,
    ):
        assert response.status == status
    await telemetry.stop()


async def test_a_refusing_collector_is_not_asked_again(make_config: MakeConfig, start: Start) -> None:
    there = HttpCollector(unused_port())
    there.status = 400
    await there.start()
    config = make_config(there.endpoint, "HTTP")
    telemetry = await start(config)
    send(config, root())
    await eventually(lambda: there.requests)
    await telemetry.stop()
    await there.stop()
    assert there.requests == 1
    assert metrics_of(telemetry, "guidedmodel_spans_dropped_total") == 1
