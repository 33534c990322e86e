"""What the operator serves by HTTP: its health, for its pod's probes, and its metrics."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus' text format


@asynccontextmanager
async def serve(
    host: str, port: int, is_ready: Callable[[], bool], metrics: Callable[[], bytes]
) -> AsyncIterator[None]:
    """Serve /healthz, /readyz and /metrics while the context lasts.

    /healthz answers as long as the event loop runs; /readyz is 503 until `is_ready` returns true, which it
    does on a standby too, once it knows that another replica leads. `metrics` returns Prometheus' text
    format.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if is_ready() else web.Response(status=503, text="not synced\n")

    async def scraped(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": _CONTENT_TYPE})

    application = web.Application()
    application.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", scraped)]
    )
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    try:
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
