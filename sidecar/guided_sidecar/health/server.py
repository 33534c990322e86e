"""The sidecar's HTTP port: /startupz, /readyz, /status and /metrics."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from guided_contract import status
from guided_contract.heartbeat import now_ns
from guided_contract.status import NotReadyReason
from guided_contract.tasks import Living
from guided_sidecar.health import heartbeats
from guided_sidecar.health.metrics import HealthCollector
from guided_sidecar.health.probe import GuidedProbe
from guided_sidecar.health.readiness import Reading, Verdict, judge
from guided_sidecar.health.status_page import page
from guided_sidecar.settings import Settings
from guided_sidecar.socket.snapshot import ServiceSnapshot
from guided_sidecar.telemetry.metrics import CONTENT_TYPE, SidecarMetrics

_PERIOD_S: Final = 1.0
_STALE_S: Final = 10.0  # an answer older than this is no answer: the loop that makes them must have died


class HealthServer:
    """Answers from a verdict that is made once a second, so that asking costs nothing and changes nothing.

    Parameters
    ----------
    snapshot
        Tells how the grammar service is at this moment.
    metrics
        What /metrics shows; the health's own are added.
    processor_failures
        How many sequences ended for each logits processor.
    """

    def __init__(
        self,
        settings: Settings,
        snapshot: Callable[[], ServiceSnapshot],
        metrics: SidecarMetrics,
        processor_failures: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._config = settings.pod
        self._node = settings.node
        self._snapshot = snapshot
        self._processor_failures = processor_failures
        self._metrics = metrics
        self.probe = GuidedProbe(
            settings.pod, snapshot, lambda: self._engine().steps, api_key=settings.api_key
        )
        self._look()
        self._judge = Living("judge", self._judge_forever)
        metrics.registry.register(HealthCollector(lambda: (self._reading, self._verdict)))
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

    @property
    def verdict(self) -> Verdict:
        """The last verdict, or that there has been none for too long."""
        if time.monotonic() - self._looked_s > _STALE_S:
            what = "the sidecar has stopped judging the engine's health"
            return Verdict(False, NotReadyReason.ENGINE_STALLED, what)
        return self._verdict

    def _look(self) -> None:
        self._reading = Reading(
            config=self._config,
            snapshot=self._snapshot(),
            engine=self._engine(),
            probe=self.probe.status,
            probe_failure=self.probe.last_failure,
            probe_passed=self.probe.passed,
            processor_failures=self._processor_failures(),
            drafts=self._metrics.drafts,
            draining=self._config.is_draining,
            node=self._node,
        )
        self._verdict = judge(self._reading)
        self._looked_s = time.monotonic()

    def _engine(self) -> heartbeats.EngineState:
        config, now = self._config, now_ns()
        if self._node:
            return heartbeats.read_workers(config.heartbeats_file, config.workers_of(self._node), now)
        return heartbeats.read(
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
