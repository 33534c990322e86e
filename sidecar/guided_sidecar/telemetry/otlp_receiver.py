"""OTLP/HTTP receiver on loopback for vLLM's own spans, which go on to the collector with the sidecar's.

Our own, because the SDK only sends; and the collector's credentials stay out of the engine's container.
"""

import asyncio
import zlib
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)

from guided_sidecar.telemetry import otlp_resources
from guided_sidecar.telemetry.exporter import Batch, Exporter
from guided_sidecar.telemetry.otlp_resources import UnreadableError
from guided_sidecar.telemetry.otlp_transport import TRACES

BODY_BYTES: Final = 4 << 20  # the SDK's batches of 512 spans are far below; also the bound after gunzip
_LARGE: Final = (
    64 << 10
)  # read in a thread: a batch of the SDK's takes 9 ms, in which others wait for grammars
_PROTOBUF: Final = "application/x-protobuf"
_ANSWER: Final = ExportTraceServiceResponse().SerializeToString()
_GZIP: Final = 16 + zlib.MAX_WBITS


class OtlpReceiver:
    """Serves POST /v1/traces on loopback; answers 200 as soon as the spans are queued or counted as lost.

    Parameters
    ----------
    exporter
        None: traces are off, and spans are taken and forgotten, so that vLLM logs no failures.
    resource
        Attributes to add to each resource that lacks them, see `resource.of_the_pod`.
    """

    def __init__(self, port: int, exporter: Exporter | None, resource: Mapping[str, str]) -> None:
        self._exporter = exporter
        self._resource = resource
        app = web.Application(client_max_size=BODY_BYTES)
        app.router.add_post(TRACES.path, self._traces)
        self._runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=1.0)
        self._port = port

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
        # aiohttp's own content_type reads comments, however many are in each other.
        if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != _PROTOBUF:
            raise web.HTTPUnsupportedMediaType(text=f"only {_PROTOBUF} is taken")
        body = _inflate(await request.read(), request.headers.get("Content-Encoding", "identity"))
        try:
            if len(body) < _LARGE:
                body, spans = otlp_resources.described(body, self._resource)
            else:
                body, spans = await asyncio.to_thread(otlp_resources.described, body, self._resource)
        except UnreadableError as error:
            raise web.HTTPBadRequest(text=f"not an ExportTraceServiceRequest: {error}") from error
        if self._exporter is not None:
            self._exporter.offer(Batch("engine", spans, body))
        return web.Response(body=_ANSWER, content_type=_PROTOBUF)


def _inflate(body: bytes, encoding: str) -> bytes:
    """Return the body unpacked, never more than BODY_BYTES of it: a small body can unpack to gigabytes."""
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise web.HTTPUnsupportedMediaType(text=f"unknown content encoding {encoding!r}")
    packed = zlib.decompressobj(wbits=_GZIP)
    try:
        unpacked = packed.decompress(body, BODY_BYTES + 1)
    except zlib.error as error:
        raise web.HTTPBadRequest(text="not gzip") from error
    if len(unpacked) > BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(max_size=BODY_BYTES, actual_size=len(unpacked))
    if not packed.eof or packed.unused_data:
        raise web.HTTPBadRequest(text="not one whole gzip stream")
    return unpacked
