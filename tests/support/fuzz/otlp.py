"""What a process of the pod may send to the OTLP receiver: raw HTTP, over a real connection."""

import asyncio
import gzip
import random
import re
import zlib
from typing import Final

from devtools.process import free_ports
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from guided_sidecar.telemetry import conventions, otlp_receiver, otlp_resources
from guided_sidecar.telemetry.exporter import Batch
from guided_sidecar.telemetry.otlp_receiver import OtlpReceiver
from support.fuzz import mutation
from support.fuzz.target import Target, end_all

_DEADLINE_S: Final = 5.0
_RESOURCE: Final = {"service.name": "guidedmodel", "k8s.namespace.name": "default"}
_TURNS: Final = 100  # of the event loop; it takes some ten to answer
_MOST_ADDED_BYTES: Final = 200
_TYPE: Final = "Content-Type: application/x-protobuf"


def target() -> Target:
    """Return the target."""
    receiver = _Receiver()
    return Target(seeds(), _changed, receiver.run, receiver.close)


def seeds() -> list[bytes]:
    """Return requests as the SDK sends them, and in the ways that HTTP has besides."""
    body = traces(3)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:5], body[5:])) + b"0\r\n\r\n"
    return [
        request(body),
        request(gzip.compress(body), "Content-Encoding: gzip"),
        request(gzip.compress(body) + gzip.compress(b""), "Content-Encoding: gzip"),
        _head("Transfer-Encoding: chunked") + chunks,
        request(b""),
        request(body).replace(_TYPE.encode(), b"Content-Type: application/json"),
        request(body).replace(_TYPE.encode(), b"Content-Type: a; b=" + b"(" * 5000),
    ]


def traces(spans: int) -> bytes:
    """Return an ExportTraceServiceRequest."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.append(KeyValue(key="service.name", value=AnyValue(string_value="vllm")))
    for number in range(spans):
        span = group.scope_spans.add().spans.add(
            name="llm_request", trace_id=b"t" * 16, span_id=b"s" * 8, kind=Span.SPAN_KIND_SERVER
        )
        for name in conventions.RENAMED:
            span.attributes.append(KeyValue(key=name, value=AnyValue(int_value=number)))
        span.attributes.append(KeyValue(key="n", value=AnyValue(int_value=number)))
    return message.SerializeToString()


def request(body: bytes, *headers: str) -> bytes:
    """Return one whole HTTP request."""
    return _head(f"Content-Length: {len(body)}", *headers) + body


def _head(*headers: str) -> bytes:
    lines = ["POST /v1/traces HTTP/1.1", "Host: localhost", "Connection: close", _TYPE, *headers, "", ""]
    return "\r\n".join(lines).encode()


def _changed(data: bytes, chance: random.Random) -> bytes:
    """Change the head, or the body in such a way that it arrives."""
    head, end, body = data.partition(b"\r\n\r\n")
    if chance.random() < 0.3:
        return mutation.some_bytes(head + end, chance) + body
    if b"gzip" in head and chance.random() < 0.7:
        try:
            body = gzip.compress(mutation.some_bytes(gzip.decompress(body), chance))
        except (OSError, EOFError, zlib.error):
            body = mutation.some_bytes(body, chance)
    else:
        body = mutation.some_bytes(body, chance)
    return re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(body), head) + end + body


class _Export:
    """Takes what is to go on to the collector."""

    def offer(self, batch: Batch) -> None:
        assert len(batch.body) <= otlp_receiver.BODY_BYTES + otlp_resources.MOST_GROUPS * _MOST_ADDED_BYTES
        try:
            read = ExportTraceServiceRequest.FromString(batch.body)
        except DecodeError:
            return  # garbage far inside, which the collector will refuse
        assert all(
            _RESOURCE.keys() <= {item.key for item in one.resource.attributes} for one in read.resource_spans
        )
        spans = [span for one in read.resource_spans for scope in one.scope_spans for span in scope.spans]
        assert len(spans) == batch.spans
        assert all(map(_is_of_today, spans))


def _is_of_today(span: Span) -> bool:
    """Return whether a span is inside ours, and has no older name that it has not a newer one for."""
    names = {item.key for item in span.attributes}
    older = conventions.RENAMED.keys() & names
    return span.kind != Span.SPAN_KIND_SERVER and all(conventions.RENAMED[name] in names for name in older)


class _Receiver:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._port = free_ports(1)[0]
        export: object = _Export()
        self._server = OtlpReceiver(self._port, export, _RESOURCE)  # type: ignore[arg-type]
        self._loop.run_until_complete(self._server.start())

    def close(self) -> None:
        self._loop.run_until_complete(self._server.stop())
        self._loop.run_until_complete(end_all())
        self._loop.close()

    def run(self, data: bytes) -> None:
        answer = self._loop.run_until_complete(asyncio.wait_for(self._ask(data), _DEADLINE_S))
        assert re.match(rb"HTTP/\d\.\d (?!500)[245]\d\d |$", answer), answer[:300]
        whole = self._loop.run_until_complete(asyncio.wait_for(self._ask(_WHOLE), _DEADLINE_S))
        assert whole.startswith(b"HTTP/1.1 200 "), whole

    async def _ask(self, data: bytes) -> bytes:
        """Return all that comes back until the receiver closes the connection, or has long had all of it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(data)
            answer = asyncio.create_task(reader.read())
            for _ in range(_TURNS):
                if answer.done():
                    break
                await asyncio.sleep(0)
            else:
                writer.write_eof()
            return await answer
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()


_WHOLE: Final = request(traces(1))
