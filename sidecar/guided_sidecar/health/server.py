"""The sidecar's HTTP port: /startupz, /readyz, /status and /metrics."""

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from guided_contract import status
from guided_contract.heartbeat import now_ns
from guided_contract.tasks import Living
from guided_sidecar.health import engine_state
from guided_sidecar.health.metrics import HealthCollector
from guided_sidecar.health.probe import GuidedProbe
from guided_sidecar.health.readiness import Reading, judge
from guided_sidecar.health.status_page import page
from guided_sidecar.settings import Settings
from guided_sidecar.socket.snapshot import ServiceSnapshot
from guided_sidecar.telemetry.metrics import CONTENT_TYPE, SidecarMetrics

_PERIOD_S: Final = 1.0


class HealthServer:
    """Answers from a verdict that is made once a second, so that asking costs nothing and changes nothing.

    `snapshot` tells how the grammar service is now. /metrics shows `metrics`, and the health's own.
    """

    def __init__(
        self, settings: Settings, snapshot: Callable[[], ServiceSnapshot], metrics: SidecarMetrics
    ) -> None:
        self._config = settings.pod
        self._node = settings.node
        self._snapshot = snapshot
        self._metrics = metrics
        self.probe = GuidedProbe(
            settings.pod, snapshot, lambda: self._engine().steps, api_key=settings.api_key
        )
        self._look()
        self._judge = Living("judge", self._judge_forever)
        metrics.registry.register(HealthCollector(lambda: (self._reading, self.verdict)))
        app = web.Application()
        app.router.add_get("/startupz", self._startupz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/status", self._status)
        app.router.add_get("/metrics", self._render)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> None:
        """Listen, and begin to judge and to probe; OSError: the port is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._config.bind_host, self._config.ports.sidecar).start()
        self._judge.start()
        if not self._node:  # the others have no API server to ask
            self.probe.start()

    async def stop(self) -> None:
        """Stop probing and listening."""
        await self.probe.stop()
        await self._judge.stop()
        await self._runner.cleanup()

    def _look(self) -> None:
        self._reading = Reading(
            config=self._config,
            snapshot=self._snapshot(),
            engine=self._engine(),
            probe=self.probe.status,
            probe_failure=self.probe.last_failure,
            processor_failures=self._metrics.processor_failures,
            matchers_restarts=self._metrics.matchers_restarts,
            drafts=self._metrics.drafts,
            draining=self._config.is_draining,
            node=self._node,
        )
        self.verdict = judge(self._reading)

    def _engine(self) -> engine_state.EngineState:
        config, now = self._config, now_ns()
        if self._node:
            return engine_state.read_workers(config.heartbeats_file, config.workers_of(self._node), now)
        return engine_state.read(
            config.heartbeats_file, workers=config.workers, engines=config.data_parallel, now_ns=now
        )

    async def _judge_forever(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(_PERIOD_S)

    async def _startupz(self, _: web.Request) -> web.Response:
        # Never the engine: the kubelet starts the engine only after this succeeds.
        if self._config.service_socket.is_socket():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the grammar service's socket is not bound yet\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        is_ready, reason, message = self.verdict
        return (
            web.Response(text="ok\n") if is_ready else web.Response(status=503, text=f"{reason}: {message}\n")
        )

    async def _status(self, _: web.Request) -> web.Response:
        body = status.encode(page(self._reading, self.verdict))
        return web.Response(body=body, content_type="application/json")

    async def _render(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})
