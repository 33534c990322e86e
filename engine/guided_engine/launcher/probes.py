"""The engine container's probes over HTTP; answered by the launcher, so also while the API server hangs."""

import asyncio
import contextlib
import logging
from typing import Final

import aiohttp
from aiohttp import web

from guided_contract.config import PodConfig
from guided_contract.heartbeat import Heartbeats, core_slot, now_ns
from guided_contract.tasks import Living
from guided_engine.launcher.stall import StallWatch

_log = logging.getLogger("guided_engine")

_PERIOD_S: Final = 1.0
_HEALTH_TIMEOUT: Final = aiohttp.ClientTimeout(5.0)


class Probes:
    """Serves /startupz (vLLM's /health has answered 200 once) and /livez (all live, work and answer).

    Parameters
    ----------
    pod
        The pod's configuration: ports and deadlines.
    beats
        The heartbeats of this engine start.
    node
        Which of its replica's pods this is. On another than the first there is no API server: it has started
        when its ranks beat.
    first
        The first pod's address, on another whose vLLM is left untouched: that one knows of its ranks.
    """

    def __init__(self, pod: PodConfig, beats: Heartbeats, node: int = 0, first: str = "") -> None:
        self._pod = pod
        self._ranks = pod.workers_of(node) if node and not first else None
        health, started = f"127.0.0.1:{pod.ports.engine}/health", f"{first}:{pod.ports.launcher}/startupz"
        self._url = f"http://{started if first else health}"
        self._beats = beats
        self._engines = [StallWatch(pod.probes.stall_timeout_s) for _ in range(pod.data_parallel)]
        self._good_ns = 0  # when /health last answered 200; 0: never
        self._wrong: dict[str, str] = {}  # by watch; "" is right
        self._watches = (Living("steps", self._watch_steps), Living("health", self._watch_health))
        app = web.Application()
        app.add_routes([web.get("/startupz", self._startupz), web.get("/livez", self._livez)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> None:
        """Bind the port and begin to watch."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._pod.bind_host, self._pod.ports.launcher).start()
        for watch in self._watches:
            watch.start()

    @property
    def serving(self) -> bool:
        """Whether there may be requests that will be answered: it has started, and nothing is wrong."""
        return self._good_ns > 0 and not any(self._wrong.values())

    def stop_judging(self) -> None:
        """Leave the verdicts as they are: vLLM ends because it was told to."""
        for watch in self._watches:
            watch.cancel()

    async def stop(self) -> None:
        """Stop watching and close the port."""
        for watch in self._watches:
            await watch.stop()
        await self._runner.cleanup()

    async def _startupz(self, _request: web.Request) -> web.Response:
        if self._good_ns:
            return web.Response(text="started\n")
        return web.Response(status=503, text="vLLM's /health has not answered 200 yet\n")

    async def _livez(self, _request: web.Request) -> web.Response:
        wrong = "; ".join(filter(None, self._wrong.values()))
        if wrong:
            return web.Response(status=503, text=f"{wrong}\n")
        return web.Response(text="live\n")

    async def _watch_steps(self) -> None:
        while True:
            for engine, watch in enumerate(self._engines):
                first = core_slot(engine, self._pod.workers)
                beats = map(self._beats.read, range(first, first + 1 + self._pod.workers))
                self._judge(f"steps of engine {engine}", watch.verdict(beats, now_ns()))
            await asyncio.sleep(_PERIOD_S)

    async def _watch_health(self) -> None:
        while True:
            with contextlib.suppress(OSError, aiohttp.ClientError):
                if await self._is_good():
                    self._good_ns = now_ns()
            silent_s = (now_ns() - self._good_ns) / 1e9
            hangs = self._good_ns > 0 and silent_s >= self._pod.probes.stall_timeout_s
            self._judge(
                "health", f"vLLM's /health has not answered 200 for {silent_s:.0f} s" if hangs else ""
            )
            await asyncio.sleep(_PERIOD_S)

    async def _is_good(self) -> bool:
        if self._ranks is None:
            async with aiohttp.ClientSession(timeout=_HEALTH_TIMEOUT) as http, http.get(self._url) as answer:
                return answer.status == 200
        return all(self._beats.read(1 + rank).pid for rank in self._ranks)

    def _judge(self, watch: str, wrong: str) -> None:
        if wrong and not self._wrong.get(watch):
            _log.error("guidedmodel: not live: %s", wrong)
        self._wrong[watch] = wrong
