"""The datagram socket: who may write, what is kept, what is counted."""

import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from guided_contract import records
from guided_contract.records import AnyRecord, Decode, HttpRequest
from support.collectors import eventually
from support.spans import MemorySpans, span_id, telemetry

RECORD = HttpRequest(
    trace_id="0af7651916cd43dd8448eb211c80319c",
    span_id="b7ad6b7169203331",
    start_ns=1,
    end_ns=2,
    route="/v1/completions",
    status=200,
)


@dataclass(slots=True)
class Counts:
    taken: list[AnyRecord] = field(default_factory=list)
    garbage: int = 0

    def take(self, record: AnyRecord) -> None:
        self.taken.append(record)

    def take_garbage(self) -> None:
        self.garbage += 1


@dataclass(slots=True)
class Pod:
    path: Path
    spans: MemorySpans
    counts: Counts
    client: socket.socket

    def send(self, datagram: bytes) -> None:
        self.client.sendto(datagram, str(self.path))


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path is at most 107 bytes, and pytest's folders are long.
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
async def pod(folder: Path) -> AsyncIterator[Pod]:
    spans, counts = MemorySpans(), Counts()
    listening = telemetry(spans, counts, folder)
    await listening.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        yield Pod(folder / "telemetry.sock", spans, counts, client)
    await listening.stop()


async def test_a_record_becomes_a_span_and_a_count(pod: Pod) -> None:
    pod.send(records.encode(RECORD))
    await eventually(lambda: pod.spans.finished)
    assert span_id(pod.spans.finished[0]) == RECORD.span_id
    assert pod.counts.taken == [RECORD]


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"garbage",
        b"\x80",
        os.urandom(5000),
        records.encode(RECORD)[:-1],
        records.encode(RECORD).replace(b"b7ad6b7169203331", b"not hexadecimal!"),
        records.encode(RECORD).replace(b"HttpRequest", b"HttpRequesT"),
    ],
)
async def test_garbage_is_counted_and_the_next_record_is_taken(pod: Pod, datagram: bytes) -> None:
    pod.send(datagram)
    pod.send(records.encode(RECORD))
    await eventually(lambda: pod.counts.taken)
    assert pod.counts.garbage == 1
    assert len(pod.spans.finished) == 1


async def test_figures_that_no_collector_can_hold_are_garbage(pod: Pod) -> None:
    huge = Decode(
        traceparent=None, rank=0, grammar_key="k", backend="guidance", start_ns=0, end_ns=0, steps=1 << 63
    )
    pod.send(records.encode(huge))
    await eventually(lambda: pod.counts.garbage)


async def test_only_the_owner_may_write(pod: Pod) -> None:
    assert stat.S_IMODE(pod.path.stat().st_mode) == 0o600
    assert [file.name for file in pod.path.parent.iterdir()] == [pod.path.name]


async def test_a_successor_takes_the_socket_over(pod: Pod) -> None:
    spans, counts = MemorySpans(), Counts()
    successor = telemetry(spans, counts, pod.path.parent)
    await successor.start()
    pod.send(records.encode(RECORD))
    await eventually(lambda: spans.finished)
    await successor.stop()
    assert not pod.spans.finished
