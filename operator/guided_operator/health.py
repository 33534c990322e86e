"""The operator's own health page, for its pod's probes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serve(host: str, port: int, is_ready: Callable[[], bool]) -> AsyncIterator[None]:
    """Serve /healthz and /readyz while the context lasts.

    /healthz answers as long as the event loop turns; /readyz is 503 until the operator has seen the cluster.
    A standby is ready too.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if is_ready() else web.Response(status=503, text="not synced\n")

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
