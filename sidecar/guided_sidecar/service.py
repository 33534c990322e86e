"""The service that the supervisor keeps alive: the sidecar's parts, put together; they decide."""

import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path
from typing import Final

from guided_contract import config, processes
from guided_sidecar import settings
from guided_sidecar.health.server import HealthServer
from guided_sidecar.ranks.agreement import Agreement
from guided_sidecar.settings import Settings
from guided_sidecar.socket.grammar_service import GrammarService
from guided_sidecar.socket.relay import Relay
from guided_sidecar.telemetry.pipeline import Telemetry

NAME: Final = "sidecar-service"  # of the process; its command line is the supervisor's


async def run(configuration: Settings) -> None:
    """Serve until TERM or INT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        pod = configuration.pod
        service: GrammarService | Relay
        if configuration.node:
            service = Relay(configuration)
            telemetry = Telemetry(pod, service.forward)
        else:
            agreement = Agreement(pod.tensor_parallel)
            telemetry = Telemetry(pod, agreement.receive)
            service = GrammarService(configuration, telemetry.tracer, agreement)
        health = HealthServer(configuration, service.snapshot, telemetry.metrics)
        # Stopped in the opposite order: the last spans are sent after their makers have ended.
        for part in (telemetry, service, health):
            await part.start()
            stack.push_async_callback(part.stop)
        await stop.wait()


def main() -> None:
    """Read the configuration and serve; exit 2 if it is missing or wrong."""
    processes.die_with_parent()  # a supervisor that was killed must not leave a second service behind
    Path("/proc/self/comm").write_text(NAME)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s sidecar: %(message)s", force=True)
    try:
        configuration = settings.load()
    except config.ConfigError as error:
        sys.stderr.write(f"guided_sidecar: {error}\n")
        sys.exit(2)
    asyncio.run(run(configuration))
