"""The one way out for traces: a bounded queue, one sender, retries with backoff, and counted losses.

Our own, not the SDK's batch processor and exporters: vLLM's spans, which come as bytes, share the queue and
its one count of losses.
"""

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from guided_contract.tasks import Living
from guided_sidecar.export_options import USUAL, ExportOptions
from guided_sidecar.telemetry.otlp_transport import Reply, Transport

Source = Literal["sidecar", "engine"]
DropReason = Literal["queue_full", "refused", "retries_spent", "failed", "shutdown"]

QUEUE_BYTES: Final = 16 << 20  # some 30,000 spans: a minute of a collector's restart at full load
MAX_ATTEMPTS: Final = 8  # with the delays below about 45 s; then the next batch gets its chance

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """One serialised ExportTraceServiceRequest with its number of spans."""

    source: Source
    spans: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays between attempts: doubled from `base_s` up to `max_s`, then spread by a fifth.

    A collector may ask for longer ones, up to `most_wished_s`.
    """

    base_s: float = 0.5
    max_s: float = 10.0
    most_wished_s: float = 60.0

    def delay_s(self, attempt: int) -> float:
        """Return the delay after attempt number `attempt` (from 1) failed."""
        spread = random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, hides nothing
        return float(min(self.base_s * 2 ** (attempt - 1), self.max_s) * spread)


@dataclass(slots=True)
class ExportCounts:
    """Spans since the start."""

    exported: Counter[Source] = field(default_factory=Counter)
    dropped: Counter[tuple[Source, DropReason]] = field(default_factory=Counter)


class Exporter:
    """Sends batches in order. `offer` never blocks: what does not fit is dropped and counted.

    Parameters
    ----------
    transport
        Closed by `stop`.
    queue_bytes
        Bound on the bodies that wait, the one being sent included.
    """

    def __init__(
        self, transport: Transport, *, queue_bytes: int = QUEUE_BYTES, backoff: Backoff | None = None
    ) -> None:
        self.counts = ExportCounts()
        self._transport = transport
        self._limit = queue_bytes
        self._backoff = backoff or Backoff()
        self._queue: deque[Batch] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._sender: Living | None = None
        self._reachable = True
        self._stopped = False

    def start(self) -> None:
        """Begin to send."""
        self._sender = Living("otlp-exporter", self._send_forever)
        self._sender.start()

    def offer(self, batch: Batch) -> bool:
        """Queue a batch; False if it was dropped."""
        if self._stopped:
            return self._drop(batch, "shutdown")
        if self._bytes + len(batch.body) > self._limit:
            return self._drop(batch, "queue_full")
        self._queue.append(batch)
        self._bytes += len(batch.body)
        self._drained.clear()
        self._filled.set()
        return True

    async def stop(self, deadline_s: float) -> None:
        """Send what is queued for at most `deadline_s`, drop the rest and close the transport; for good."""
        self._stopped = True
        if self._sender is not None:
            try:
                async with asyncio.timeout(deadline_s):
                    await self._drained.wait()
            except TimeoutError:
                _log.warning("%d trace batches were not sent before shutdown", len(self._queue))
            await self._sender.stop()
            self._sender = None
        for batch in self._queue:
            self._drop(batch, "shutdown")
        self._queue.clear()
        await self._transport.close()

    async def _send_forever(self) -> None:
        while True:
            await self._filled.wait()
            while self._queue:
                batch = self._queue[0]
                try:
                    await self._settle(batch)
                except Exception:  # perhaps for this batch's sake, which must not keep the others
                    self._drop(batch, "failed")
                    self._take_off(batch)
                    raise
                self._take_off(batch)
            self._filled.clear()
            self._drained.set()

    def _take_off(self, batch: Batch) -> None:
        self._queue.popleft()
        self._bytes -= len(batch.body)

    async def _settle(self, batch: Batch) -> None:
        """Send one batch until it is delivered or given up."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            reply = await self._transport.send(batch.body)
            self._note_reachable(reply)
            if reply.verdict == "Delivered":
                self.counts.exported[batch.source] += batch.spans - reply.rejected
                self._count_dropped(batch.source, "refused", reply.rejected)
                return
            if reply.verdict == "Refused":
                self._drop(batch, "refused")
                return
            if attempt < MAX_ATTEMPTS:
                wished_s = min(reply.retry_after_s, self._backoff.most_wished_s)
                await asyncio.sleep(max(wished_s, self._backoff.delay_s(attempt)))
        self._drop(batch, "retries_spent")

    def _note_reachable(self, reply: Reply) -> None:
        """Log the collector's loss and return, once each: a line per batch would bury the rest of the log."""
        reachable = reply.verdict == "Delivered"
        if reachable == self._reachable:
            return
        self._reachable = reachable
        if reachable:
            _log.info("the trace collector takes spans again; %d were lost", self.counts.dropped.total())
        else:
            _log.warning("the trace collector does not take spans: %s", reply.reason)

    def _drop(self, batch: Batch, reason: DropReason) -> bool:
        self._count_dropped(batch.source, reason, batch.spans)
        return False

    def _count_dropped(self, source: Source, reason: DropReason, spans: int) -> None:
        if spans:
            self.counts.dropped[source, reason] += spans


class Outlet(Protocol):
    """Where batches go; an Exporter is one."""

    def offer(self, batch: Batch) -> bool:
        """Queue a batch; False if it was dropped."""


class SpanBatches(SpanProcessor):
    """Hands our own sampled spans to the exporter, encoded in batches. For the event loop's thread only."""

    def __init__(self, exporter: Outlet, options: ExportOptions = USUAL) -> None:
        self._exporter = exporter
        self._options = options
        self._pending: list[ReadableSpan] = []
        self._timer: asyncio.TimerHandle | None = None

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span; it is exported if its trace is sampled."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        self._pending.append(span)
        if len(self._pending) >= self._options.batch_spans:
            self.force_flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._options.flush_s, self.force_flush)

    def force_flush(self, timeout_millis: int = 0) -> bool:  # noqa: ARG002 - the SDK's signature; it never waits
        """Hand everything pending to the exporter."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending:
            batch, self._pending = self._pending, []
            self._exporter.offer(Batch("sidecar", len(batch), _encoded(batch)))
        return True


def _encoded(batch: Sequence[ReadableSpan]) -> bytes:
    """Encode spans of one tracer with their W3C flags, which the SDK leaves out of OTLP's."""
    request = encode_spans(batch)
    scopes = (scope for group in request.resource_spans for scope in group.scope_spans)
    encoded = (span for scope in scopes for span in scope.spans)
    for span, made in zip(encoded, batch, strict=True):
        context = made.get_span_context()
        span.flags |= 0 if context is None else context.trace_flags
        for link, of in zip(span.links, made.links, strict=True):
            link.flags |= of.context.trace_flags
    return request.SerializeToString()
