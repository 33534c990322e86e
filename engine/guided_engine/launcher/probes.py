"""The engine container's probes over HTTP; answered by the launcher, so also while the API server hangs."""

import asyncio
import contextlib
import http.client
import logging
from typing import Final

from aiohttp import web

from guided_contract.config import PodConfig
from guided_contract.heartbeat import Heartbeats, now_ns
from guided_engine.launcher.stall import StallWatch

_log = logging.getLogger("guided_engine")

_PERIOD_S: Final = 1.0
_HEALTH_TIMEOUT_S: Final = 5.0


class Probes:
    """Serves /startupz (vLLM's /health has answered 200 once) and /livez (core and ranks live and work).

    Parameters
    ----------
    pod
        The pod's configuration: ports and deadlines.
    beats
        The heartbeats of this engine start.
    """

    def __init__(self, pod: PodConfig, beats: Heartbeats) -> None:
        self._pod = pod
        self._beats = beats
        self._watch = StallWatch(pod.probes.stall_timeout_s)
        self._slots = range(1 + pod.tensor_parallel)
        self._wrong = ""
        self._started = False
        self._runner: web.AppRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Bind the port and begin to watch."""
        app = web.Application()
        app.add_routes([web.get("/startupz", self._startupz), web.get("/livez", self._livez)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._pod.bind_host, self._pod.ports.launcher).start()
        self._tasks = [asyncio.create_task(self._watch_beats()), asyncio.create_task(self._await_health())]

    async def stop(self) -> None:
        """Stop watching and close the port."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _startupz(self, _request: web.Request) -> web.Response:
        if self._started:
            return web.Response(text="started\n")
        return web.Response(status=503, text="vLLM's /health has not answered 200 yet\n")

    async def _livez(self, _request: web.Request) -> web.Response:
        if self._wrong:
            return web.Response(status=503, text=f"{self._wrong}\n")
        return web.Response(text="live\n")

    async def _watch_beats(self) -> None:
        while True:
            wrong = self._watch.verdict(map(self._beats.read, self._slots), now_ns())
            if wrong and not self._wrong:
                _log.error("guidedmodel: not live: %s", wrong)
            self._wrong = wrong
            await asyncio.sleep(_PERIOD_S)

    async def _await_health(self) -> None:
        while not self._started:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._started = await asyncio.to_thread(_is_healthy, self._pod.ports.engine)
            await asyncio.sleep(_PERIOD_S)


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    finally:
        connection.close()
