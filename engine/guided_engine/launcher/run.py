"""The launcher's one loop: start vLLM, answer probes, pass signals on, end with vLLM's exit code."""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
from typing import Final

from guided_contract import config, names
from guided_contract.config import DrainConfig, PodConfig
from guided_contract.heartbeat import Heartbeats
from guided_contract.tasks import Living
from guided_engine import last_words, ledger
from guided_engine.cpus import Cpus
from guided_engine.launcher import drain
from guided_engine.launcher.command import EngineCommand, plan
from guided_engine.launcher.probes import Probes
from guided_engine.launcher.process import EngineProcess
from guided_engine.service_link import ServiceConnection

_log = logging.getLogger("guided_engine")

# After TERM the API server has so long to abort its requests and to stop the ranks. The pod's grace period
# is longer (guided_operator.builders.pod), so that we, not the kubelet, decide who is killed.
STOP_S: Final = 20.0
# Core and ranks without an API server have nobody to answer to.
REST_GRACE_S: Final = 1.0
REST_TERM_S: Final = 5.0


def main(argv: list[str]) -> int:
    """Run vLLM with the arguments after ``--`` until it ends, and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        pod = config.load()
    except config.ConfigError as error:
        return _refuse(str(error))
    if pod is None:
        return _refuse(f"{names.ENV_CONFIG} does not name a configuration file")
    if argv[:1] != ["--"]:
        return _refuse("usage: python3 -m guided_engine.launcher -- VLLM_ARGS")
    command = plan(pod, argv[1:], os.environ, Cpus.of_this_process())
    leader = os.environ.get(names.ENV_LEADER, "") if config.node() else ""
    return asyncio.run(Launcher(pod, command, leader).run())


def _refuse(message: str) -> int:
    sys.stderr.write(f"guidedmodel launcher: {message}\n")
    return 2


class Launcher:
    """Runs one engine start, by `command.plan`; `leader` is the replica's first node, "" if this is."""

    def __init__(self, pod: PodConfig, command: EngineCommand, leader: str = "") -> None:
        self._pod = pod
        self._leader = leader
        self._command = command
        self._stopping: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Start vLLM and return its exit code when it has ended and nothing of it is left.

        An end that nobody asked for is a failure: vLLM says 0 also when its engine core has died.
        """
        pod, command = self._pod, self._command
        if command.unsupported:
            _log.warning("guidedmodel: vLLM is not patched: %s", command.unsupported)
        for file in (pod.draining_file, pod.failure_file):  # an earlier container's
            file.unlink(missing_ok=True)
        beats = Heartbeats.create(pod.heartbeats_file)
        probes = Probes(pod, beats, config.node(), self._leader if command.unsupported else "")
        await probes.start()
        engine = EngineProcess(command)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, engine, probes, number)
        said = functools.partial(ledger.hello, "launcher", boot=command.boot, unsupported=command.unsupported)
        connection = ServiceConnection(pod.service_socket, said, lambda _message: None)
        hello = Living("service-connection", connection.run)
        hello.start()
        try:
            code = await engine.wait()
            return code if code or self._stopping is not None else 1
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
            async with asyncio.timeout(STOP_S):
                await engine.wait()
                return
        _log.warning("guidedmodel: vLLM did not stop within %.0f s; killing it", STOP_S)
        engine.kill()

    async def _drain(self, how: DrainConfig) -> None:
        self._pod.draining_file.touch()
        if self._leader:
            most_s = how.endpoint_lag_s + how.timeout_s
            await drain.wait_gone(self._leader, self._pod.ports.launcher, most_s)
        else:
            await drain.wait(how, self._pod.ports.engine)
