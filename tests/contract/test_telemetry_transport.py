"""How one request reaches a collector: compressed, with which headers, and when it is to be sent again."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import grpc
import pytest
from aiohttp.test_utils import unused_port
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from guided_contract.config import TelemetryConfig
from guided_sidecar.export_options import USUAL, ExportOptions
from guided_sidecar.telemetry import exporter, otlp_transport
from guided_sidecar.telemetry.exporter import Backoff, Batch, Exporter
from guided_sidecar.telemetry.otlp_transport import Reply, Transport
from support.collectors import Collector, GrpcCollector, HttpCollector


def body(spans: int = 1) -> bytes:
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for number in range(spans):
        scope.spans.add(name=f"span {number}")
    return message.SerializeToString()


@contextlib.asynccontextmanager
async def connected(
    to: Collector, options: ExportOptions = USUAL, *, path: str = "", headers: Path | None = None
) -> AsyncIterator[Transport]:
    transport = otlp_transport.connect(
        TelemetryConfig(
            endpoint=to.endpoint + path,
            protocol="GRPC" if isinstance(to, GrpcCollector) else "HTTP",
            headers_folder=None if headers is None else str(headers),
        ),
        options,
    )
    assert transport is not None
    try:
        yield transport
    finally:
        await transport.close()


@pytest.mark.parametrize("spans", [1, 20_000], ids=["small", "large"])
@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "none"])
async def test_bodies_are_compressed_unless_told_otherwise(
    collector: Collector, spans: int, *, packed: bool
) -> None:
    async with connected(collector, ExportOptions(gzip=packed)) as transport:
        assert await transport.send(body(spans)) == Reply("Delivered")
    assert len(collector.kept.spans) == spans
    name = "grpc-encoding" if isinstance(collector, GrpcCollector) else "content-encoding"
    if isinstance(collector, HttpCollector):  # gRPC keeps it from the application
        assert collector.kept.headers.get(name) == ("gzip" if packed else None)


async def test_headers_of_the_environment_go_with_those_of_the_secret(
    collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "authorization").write_text("Bearer secret")
    options = ExportOptions(headers={"authorization": "Bearer env", "x-tenant": "a"})
    async with connected(collector, options, headers=tmp_path) as transport:
        await transport.send(body())
    assert collector.kept.headers["authorization"] == "Bearer secret"
    assert collector.kept.headers["x-tenant"] == "a"


async def test_an_endpoint_may_name_the_path_of_traces() -> None:
    collector = HttpCollector(unused_port())
    await collector.start()
    async with connected(collector, path="/v1/traces") as transport:
        assert (await transport.send(body())).verdict == "Delivered"
    await collector.stop()


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date", "past", "neither"])
async def test_a_collector_says_over_http_when_to_come_again(status: int, form: str) -> None:
    def date(seconds: int) -> str:
        return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)

    collector = HttpCollector(unused_port())
    collector.status = status
    collector.retry_after = {"seconds": "7", "date": date(90), "past": date(-90), "neither": "soon"}[form]
    await collector.start()
    async with connected(collector) as transport:
        reply = await transport.send(body())
    await collector.stop()
    assert reply.verdict == "Retry"
    least, most = {"seconds": (7, 7), "date": (1, 90), "past": (0, 0), "neither": (0, 0)}[form]
    assert least <= reply.retry_after_s <= most


@pytest.mark.parametrize(
    ("code", "retry_s", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, 7, ("Retry", 7.0)),
        (grpc.StatusCode.UNAVAILABLE, None, ("Retry", 0.0)),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 7, ("Retry", 7.0)),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, None, ("Refused", 0.0)),
        (grpc.StatusCode.INVALID_ARGUMENT, 7, ("Refused", 7.0)),
    ],
)
async def test_a_collector_says_over_grpc_when_to_come_again(
    code: grpc.StatusCode, retry_s: int | None, expected: tuple[str, float]
) -> None:
    collector = GrpcCollector(unused_port())
    collector.code, collector.retry_s = code, retry_s
    await collector.start()
    async with connected(collector) as transport:
        reply = await transport.send(body())
    await collector.stop()
    assert (reply.verdict, reply.retry_after_s) == expected


@pytest.mark.parametrize(("asked", "waited"), [("30", 30.0), ("86400", 60.0)], ids=["obeyed", "bounded"])
async def test_the_exporter_waits_as_long_as_it_was_asked_to(
    asked: str, waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        collector.status = 200

    collector = HttpCollector(unused_port())
    collector.status, collector.retry_after = 503, asked
    await collector.start()
    async with connected(collector) as transport:
        out = Exporter(transport, backoff=Backoff(base_s=0.001, max_s=0.002))
        out.start()
        monkeypatch.setattr(exporter.asyncio, "sleep", sleep)
        out.offer(Batch("sidecar", 1, body()))
        await out._drained.wait()
        monkeypatch.undo()
        await out.stop(1)
    await collector.stop()
    assert (slept, collector.requests) == ([waited], 2)
