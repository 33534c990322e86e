"""What a process may send to the telemetry socket: records, with the real metrics, spans and comparison."""

import asyncio
from typing import Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from guided_contract import records
from guided_contract.config import LogitsProcessorConfig
from guided_contract.records import (
    Decode,
    Digest,
    Digests,
    DraftTokens,
    HttpRequest,
    ProcessorFailure,
    ProcessorTime,
    ProcessorTimes,
)
from guided_contract.wire import ServiceMessage
from guided_sidecar.ranks.agreement import Agreement
from guided_sidecar.telemetry.metrics import SidecarMetrics
from support.fuzz import mutation
from support.fuzz.target import Target
from support.spans import MemorySpans, telemetry

TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"
_RANKS: Final = 2
_PROCESSORS: Final = (LogitsProcessorConfig(name="p", factory="a.b:C"),)
_MOST_DATAGRAM_BYTES: Final = 64 << 10


def target() -> Target:
    """Return the target."""
    receiver = _Receiver()
    return Target(seeds(), mutation.either(mutation.msgpack_value), receiver.run, receiver.close)


def seeds() -> list[bytes]:
    """Return each kind of record."""
    request = HttpRequest(
        trace_id=TRACE_ID,
        span_id="b7ad6b7169203331",
        parent_span_id="00f067aa0ba902b7",
        start_ns=1,
        end_ns=2,
        route="/v1/completions",
        status=200,
        kind="json",
        grammar_key="k",
        error_code="grammar_invalid",
        dropped=3,
    )
    decode = Decode(
        traceparent=f"00-{TRACE_ID}-b7ad6b7169203331-01",
        rank=1,
        grammar_key="k",
        backend="xgrammar",
        start_ns=1,
        end_ns=2,
        tokens=4,
        end_reason="completed",
    )
    digests = [Digest(f"r{number}", number, number, 7) for number in range(3)]
    times = ProcessorTimes(rank=1, times=[ProcessorTime("p", 3, 1, 7_000_000)])
    failure = ProcessorFailure(rank=1, processors=["p"], code="sequence_processor_failed")
    compared = (Digests(rank=0, digests=digests), Digests(rank=1, digests=digests))
    drafts = DraftTokens(engine=0, chosen=3, changes=1)
    sent = (request, decode, *compared, times, failure, drafts)
    return [records.encode(record) for record in sent]


class _Export(SpanProcessor):
    """Encodes spans as exporters do."""

    def on_end(self, span: ReadableSpan) -> None:
        encode_spans([span])


class _Api:
    def send(self, message: ServiceMessage) -> None:
        pass


class _Receiver:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._metrics = SidecarMetrics()

    def close(self) -> None:
        self._loop.close()

    def run(self, data: bytes) -> None:
        self._loop.run_until_complete(self._take(data[:_MOST_DATAGRAM_BYTES]))

    async def _take(self, datagram: bytes) -> None:
        made = MemorySpans()
        made.provider.add_span_processor(self._metrics.spans)
        made.provider.add_span_processor(_Export())
        agreement = Agreement(_RANKS)
        agreement.connect(_Api())
        receiver = telemetry(
            made,
            self._metrics,
            on_digests=agreement.receive,
            tensor_parallel=_RANKS,
            logits_processors=list(_PROCESSORS),
        )
        for one in (datagram, *_WHOLE):
            receiver.take(one)
        await receiver.stop()
        assert agreement.state.lost == 0
        self._metrics.render()


_WHOLE: Final = seeds()[:1]
