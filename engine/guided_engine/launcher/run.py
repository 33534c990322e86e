"""The launcher's one loop: start vLLM, answer probes, pass signals on, end with vLLM's exit code."""

import asyncio
import contextlib
import logging
import os
import signal
from typing import Final

from guided_contract import config, names, wire
from guided_contract.config import DrainConfig, PodConfig
from guided_contract.heartbeat import Heartbeats
from guided_contract.tasks import Living
from guided_engine import last_words, versions
from guided_engine.admission.service_connection import ServiceConnection
from guided_engine.launcher import drain
from guided_engine.launcher.command import EngineCommand
from guided_engine.launcher.probes import Probes
from guided_engine.launcher.process import EngineProcess

_log = logging.getLogger("guided_engine")

# After TERM the API server has so long to abort its requests and to stop the ranks. The pod's grace period
# is longer (guided_operator.builders.pod), so that we, not the kubelet, decide who is killed.
STOP_S: Final = 20.0
# Core and ranks without an API server have nobody to answer to.
REST_GRACE_S: Final = 1.0
REST_TERM_S: Final = 5.0
_ENDED_UNASKED: Final = 1


class Launcher:
    """Runs one engine start.

    Parameters
    ----------
    pod
        The pod's configuration.
    command
        What to start, from `command.plan`.
    stop_s
        Seconds between a TERM and the kill of what is left.
    leader
        Address of the replica's first node, "" if this is the first.
    """

    def __init__(
        self, pod: PodConfig, command: EngineCommand, *, stop_s: float = STOP_S, leader: str = ""
    ) -> None:
        self._pod = pod
        self._leader = leader
        self._command = command
        self._stop_s = stop_s
        self._stopping: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Start vLLM and return its exit code when it has ended and nothing of it is left.

        An end that nobody asked for is a failure: vLLM says 0 also when its engine core has died.
        """
        pod, command = self._pod, self._command
        if command.unsupported:
            _log.warning("guidedmodel: vLLM is left untouched: %s", command.unsupported)
        for file in (pod.draining_file, pod.failure_file):  # an earlier container's
            file.unlink(missing_ok=True)
        beats = Heartbeats.create(pod.heartbeats_file)
        probes = Probes(pod, beats, config.node())
        await probes.start()
        engine = EngineProcess(command)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, engine, probes, number)
        connection = ServiceConnection(pod.service_socket, self._hello, lambda _message: None)
        hello = Living("service-connection", connection.run)
        hello.start()
        try:
            code = await engine.wait()
            return code if code or self._stopping is not None else _ENDED_UNASKED
        finally:
            await engine.stop_rest(REST_GRACE_S, REST_TERM_S)
            await hello.stop()
            if self._stopping is not None:
                self._stopping.cancel()
                await asyncio.gather(self._stopping, return_exceptions=True)
            await probes.stop()
            beats.close()
            if why := last_words.of(pod.failure_file):
                _log.error("guidedmodel: %s%s", names.NOT_STARTED, why)

    def _stop(self, engine: EngineProcess, probes: Probes, number: int) -> None:
        if self._stopping is not None:
            engine.kill()  # asked for twice: whoever asks has lost patience
            return
        self._stopping = asyncio.create_task(self._end(engine, number, may_drain=probes.serving))
        probes.stop_judging()

    async def _end(self, engine: EngineProcess, number: int, *, may_drain: bool) -> None:
        """Finish what was begun, then end the API server, by force if it has to be."""
        how = self._pod.drain
        if how is not None and may_drain:
            try:
                await self._drain(how)
            except OSError:
                _log.exception("guidedmodel: the pod cannot drain; vLLM is ended at once")
        engine.signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._stop_s):
                await engine.wait()
                return
        _log.warning("guidedmodel: vLLM did not stop within %.0f s; killing it", self._stop_s)
        engine.kill()

    async def _drain(self, how: DrainConfig) -> None:
        self._pod.draining_file.touch()
        if self._leader:
            most_s = how.endpoint_lag_s + how.timeout_s
            await drain.wait_gone(self._leader, self._pod.ports.launcher, most_s)
        else:
            await drain.wait(how, self._pod.ports.engine)

    def _hello(self) -> wire.Hello:
        return wire.Hello(
            role="launcher",
            pid=os.getpid(),
            boot=self._command.boot,
            versions=versions.versions(),
            unsupported=self._command.unsupported,
        )
