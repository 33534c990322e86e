"""OTLP/HTTP receiver on loopback for vLLM's own spans, which go on to the collector with the sidecar's."""

import gzip
import io
import zlib
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from guided_sidecar.telemetry import conventions
from guided_sidecar.telemetry.exporter import Batch, Exporter
from guided_sidecar.telemetry.transport import HTTP_PATH

BODY_BYTES: Final = 4 << 20  # the SDK's batches of 512 spans are far below; also the bound after gunzip
_PROTOBUF: Final = "application/x-protobuf"
_ANSWER: Final = ExportTraceServiceResponse().SerializeToString()
_UNNAMED: Final = "unknown_service"  # what the SDK calls a service that got no name


class OtlpReceiver:
    """Serves POST /v1/traces on loopback; answers 200 as soon as the spans are queued or counted as lost.

    Parameters
    ----------
    exporter
        None: traces are off, and spans are taken and forgotten, so that vLLM logs no failures.
    resource
        Attributes to add to each resource that lacks them, see `resource.attributes`.
    """

    def __init__(self, port: int, exporter: Exporter | None, resource: Mapping[str, str]) -> None:
        self._port = port
        self._exporter = exporter
        self._resource = resource
        app = web.Application(client_max_size=BODY_BYTES)
        app.router.add_post(HTTP_PATH, self._traces)
        self._runner = web.AppRunner(app, access_log=None, auto_decompress=False)

    async def start(self) -> None:
        """Listen on 127.0.0.1.

        Raises
        ------
        OSError
            The port is taken.
        """
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _traces(self, request: web.Request) -> web.Response:
        if request.content_type != _PROTOBUF:
            raise web.HTTPUnsupportedMediaType(text=f"only {_PROTOBUF} is taken")
        body = _inflate(await request.read(), request.headers.get("Content-Encoding", "identity"))
        try:
            message = ExportTraceServiceRequest.FromString(body)
        except DecodeError as error:
            raise web.HTTPBadRequest(text="not an ExportTraceServiceRequest") from error
        if self._exporter is not None:
            count = 0
            for group in message.resource_spans:
                describe(group.resource, self._resource)
                count += sum(len(scope.spans) for scope in group.scope_spans)
            self._exporter.offer(Batch("engine", count, message.SerializeToString()))
        return web.Response(body=_ANSWER, content_type=_PROTOBUF)


def describe(resource: Resource, attributes: Mapping[str, str]) -> None:
    """Add to a resource what it lacks; the SDK's stand-in for a service's name counts as lacking."""
    kept = [
        item
        for item in resource.attributes
        if not (item.key == conventions.SERVICE_NAME and item.value.string_value.startswith(_UNNAMED))
    ]
    known = {item.key for item in kept}
    added = [
        KeyValue(key=key, value=AnyValue(string_value=value))
        for key, value in attributes.items()
        if key not in known
    ]
    del resource.attributes[:]
    resource.attributes.extend(kept + added)


def _inflate(body: bytes, encoding: str) -> bytes:
    """Return the body unpacked, never more than BODY_BYTES of it: a small body can unpack to gigabytes."""
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise web.HTTPUnsupportedMediaType(text=f"unknown content encoding {encoding!r}")
    try:
        with gzip.open(io.BytesIO(body)) as packed:
            unpacked = packed.read(BODY_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise web.HTTPBadRequest(text="not gzip") from error
    if len(unpacked) > BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(max_size=BODY_BYTES, actual_size=len(unpacked))
    return unpacked
