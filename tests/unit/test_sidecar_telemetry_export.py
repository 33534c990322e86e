"""The exporter's queue: order, retries, losses, the end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import Link, Tracer

from guided_sidecar.telemetry import exporter, spans
from guided_sidecar.telemetry.exporter import Backoff, Batch, Exporter, SpanBatches
from guided_sidecar.telemetry.otlp_transport import MemoryTransport, Reply
from support.collectors import Kept, Received, eventually

SOON = Backoff(base_s=0.001, max_s=0.002)
RETRY = Reply("Retry", reason="HTTP 503")


class SilentTransport(MemoryTransport):
    """A collector that takes the connection and never answers."""

    async def send(self, body: bytes) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError(body)


def batch(body: bytes = b"x", spans: int = 1) -> Batch:
    return Batch("engine", spans, body)


async def test_batches_go_out_in_order_and_are_counted() -> None:
    transport = MemoryTransport()
    out = Exporter(transport)
    out.start()
    assert out.offer(batch(b"1", spans=3))
    assert out.offer(batch(b"2"))
    await out.stop(1)
    assert transport.sent == [b"1", b"2"]
    assert (out.counts.exported["engine"], out.counts.dropped.total()) == (4, 0)


async def test_an_unreachable_collector_is_tried_again() -> None:
    transport = MemoryTransport(replies=[RETRY, RETRY])
    out = Exporter(transport, backoff=SOON)
    out.start()
    out.offer(batch())
    await eventually(lambda: transport.sent)
    await out.stop(1)
    assert out.counts.dropped.total() == 0


async def test_a_batch_that_is_never_taken_gives_way_to_the_next() -> None:
    transport = MemoryTransport(replies=[RETRY] * exporter.MAX_ATTEMPTS)
    out = Exporter(transport, backoff=SOON)
    out.start()
    out.offer(batch(b"poison", spans=2))
    out.offer(batch(b"good"))
    await eventually(lambda: transport.sent)
    await out.stop(1)
    assert transport.sent == [b"good"]
    assert out.counts.dropped == {("engine", "retries_spent"): 2}


async def test_a_refused_batch_is_not_repeated() -> None:
    transport = MemoryTransport(replies=[Reply("Refused", reason="HTTP 400")])
    out = Exporter(transport)
    out.start()
    out.offer(batch(spans=5))
    await out.stop(1)
    assert (transport.sent, out.counts.dropped) == ([], {("engine", "refused"): 5})


async def test_spans_that_the_collector_rejects_of_a_batch_count_as_lost() -> None:
    transport = MemoryTransport(replies=[Reply("Delivered", rejected=2)])
    out = Exporter(transport)
    out.start()
    out.offer(batch(spans=5))
    await out.stop(1)
    assert (out.counts.exported["engine"], out.counts.dropped) == (3, {("engine", "refused"): 2})


async def test_a_full_queue_drops_at_once_and_counts() -> None:
    out = Exporter(SilentTransport(), queue_bytes=10)
    out.start()
    assert out.offer(batch(b"12345678"))
    assert not out.offer(batch(b"123", spans=7))
    assert out.offer(batch(b"12"))
    await out.stop(0.01)
    assert out.counts.dropped == {("engine", "queue_full"): 7, ("engine", "shutdown"): 2}


async def test_the_end_has_a_deadline_and_counts_what_was_left() -> None:
    out = Exporter(SilentTransport())
    out.start()
    out.offer(batch(spans=4))
    async with asyncio.timeout(2):
        await out.stop(0.01)
    assert out.counts.dropped == {("engine", "shutdown"): 4}
    assert not out.offer(batch())


async def test_the_collectors_loss_and_return_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    out = Exporter(MemoryTransport(replies=[RETRY] * 5), backoff=SOON)
    out.start()
    out.offer(batch())
    out.offer(batch())
    await out.stop(1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"


@contextlib.asynccontextmanager
async def exporting(share: float = 1.0) -> AsyncIterator[tuple[Tracer, MemoryTransport]]:
    transport = MemoryTransport()
    out = Exporter(transport)
    out.start()
    provider = spans.provider(Resource({"service.name": "tiny"}), share=share, measured={"measured"})
    provider.add_span_processor(SpanBatches(out))
    yield spans.tracer(provider), transport
    provider.force_flush()
    await out.stop(1)


def received(transport: MemoryTransport) -> list[Received]:
    kept = Kept()
    for body in transport.sent:
        kept.add(ExportTraceServiceRequest.FromString(body))
    return kept.spans


async def test_unsampled_spans_stay_here() -> None:
    async with exporting() as (tracer, transport):
        tracer.start_span("measured", spans.remote(f"{PARENT}-00")).end()
        tracer.start_span("x", spans.remote(f"{PARENT}-00")).end()
        tracer.start_span("x", spans.remote(f"{PARENT}-01")).end()
    assert len(received(transport)) == 1


@pytest.mark.parametrize("flags", [0x01, 0x03])
async def test_the_flags_of_the_trace_leave_with_its_spans(flags: int) -> None:
    async with exporting() as (tracer, transport):
        span = tracer.start_span("x", spans.remote(f"{PARENT}-{flags:02x}"))
        tracer.start_span("y", spans.below(span), links=[Link(span.get_span_context())]).end()
        span.end()
    assert [span.flags & 0xFF for span in received(transport)] == [flags, flags]
    body = ExportTraceServiceRequest.FromString(transport.sent[0])
    [link] = body.resource_spans[0].scope_spans[0].spans[0].links
    assert link.flags & 0xFF == flags


async def test_an_error_has_a_status_and_a_type() -> None:
    async with exporting() as (tracer, transport):
        spans.end(tracer.start_span("x", spans.ALWAYS), error_code="grammar_invalid")
    (span,) = received(transport)
    assert span.status == 2
    assert span.attributes == {"error.type": "grammar_invalid"}


async def test_pending_spans_leave_by_themselves() -> None:
    async with exporting() as (tracer, transport):
        tracer.start_span("x", spans.ALWAYS).end()
        await eventually(lambda: transport.sent)
