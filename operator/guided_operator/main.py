"""The operator's entry point: connects the parts, and ends the process when one of them ends."""

import asyncio
import datetime as dt
import functools
import logging
import signal
import sys
import threading
import time
import uuid
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import kopf

from guided_contract import names
from guided_operator import handlers, health, kinds
from guided_operator.apiserver import Api, ApiError, ApiServer
from guided_operator.apply import Applier
from guided_operator.builders.site import cluster_site
from guided_operator.grammar_sources import GrammarSources
from guided_operator.lease import LeaderApi, Lease, LeaseLostError
from guided_operator.observe import Observer
from guided_operator.queue import Key, WorkQueue
from guided_operator.reconcile import Reconciler, work_together
from guided_operator.reflector import Reflector
from guided_operator.settings import OperatorSettings, SettingsError
from guided_operator.sidecars import HttpFetch, SidecarReader
from guided_operator.store import Store

logger = logging.getLogger(__name__)

LEASE_NAME: Final = "guidedmodel-operator"
_CRD_POLL_S: Final = 5.0
_EXIT_LOST: Final = 3  # told apart from a crash in the container's last state


def main() -> None:
    """Run the operator until TERM; the exit status is 0 then, and not 0 if it had to give up."""
    try:
        settings = OperatorSettings()
    except SettingsError as error:
        sys.exit(str(error))
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # A line per watched event says nothing that the status does not say better; and that it leaves signals
    # alone is what we want of it.
    logging.getLogger("kopf").setLevel(logging.ERROR)
    try:
        asyncio.run(run(settings))
    except BaseExceptionGroup as group:
        lost, rest = group.split(LeaseLostError)
        if rest is not None or lost is None:
            raise
        logger.error("no longer the leader, ending")  # noqa: TRY400 - expected, and no bug
        sys.exit(_EXIT_LOST)


async def run(settings: OperatorSettings) -> None:
    """Run the operator on the current event loop, until TERM or INT, or until a part fails."""
    asked_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServer.connected())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        parts = assemble(settings, api, session)
        await stack.enter_async_context(
            health.serve(settings.health_host, settings.health_port, parts.is_synced)
        )
        stack.push_async_callback(parts.lease.release)
        await _until_first(
            [
                _ended(asked_to_end),
                *(reflector.run() for reflector in parts.reflectors.values()),
                _watch_models(api, parts),
                _lead(parts),
            ]
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """The operator, put together and not yet running."""

    queue: WorkQueue
    reflectors: Mapping[str, Reflector]
    lease: Lease
    reconciler: Reconciler
    workers: int

    def is_synced(self) -> bool:
        """Say whether every kind has been listed, or is known to be forbidden."""
        return all(reflector.settled.is_set() for reflector in self.reflectors.values())

    async def synced(self) -> None:
        """Wait until `is_synced`: deciding earlier would take what was not listed yet for missing."""
        for reflector in self.reflectors.values():
            await reflector.settled.wait()


def assemble(settings: OperatorSettings, api: Api, session: aiohttp.ClientSession) -> Parts:
    """Put the parts together."""
    queue, store, clock = WorkQueue(time.monotonic), Store(), time.monotonic
    sources = GrammarSources(api)
    reflectors = {kind.name: Reflector(api, kind, store, queue.add) for kind in kinds.WATCHED}
    reflectors["others' ConfigMap"] = Reflector(api, kinds.GRAMMAR_SOURCE, sources, queue.add)
    lease = Lease(api, settings.namespace, LEASE_NAME, _identity(settings.pod_name), clock=clock)
    leader_api = LeaderApi(api, lease)
    reconciler = Reconciler(
        api=leader_api,
        observer=Observer(api, store, reflectors, SidecarReader(HttpFetch(session), clock), sources),
        applier=Applier(leader_api),
        site=cluster_site(settings.plugin_image),
        now=functools.partial(dt.datetime.now, dt.UTC),
    )
    return Parts(queue, reflectors, lease, reconciler, settings.workers)


async def _ended(asked_to_end: asyncio.Event) -> None:
    await asked_to_end.wait()


async def _lead(parts: Parts) -> None:
    """Wait for the Lease, then act for as long as it is held."""
    await parts.synced()
    await parts.lease.acquire()
    async with asyncio.TaskGroup() as group:
        group.create_task(parts.lease.keep())
        group.create_task(work_together(parts.queue, parts.reconciler, parts.workers))


async def _watch_models(api: ApiServer, parts: Parts) -> None:
    """Watch GuidedModels by kopf, once their CRD is there: kopf looks for it only when it starts."""
    while not await _is_served(api):
        logger.warning("the CRD %s.%s is not installed yet", names.PLURAL, names.API_GROUP)
        await asyncio.sleep(_CRD_POLL_S)
    # In a thread with a loop of its own: when kopf ends it waits for, and then cancels, every task of its
    # loop, and it takes the process's signals, unless it is not in the main thread.
    stop, loop = threading.Event(), asyncio.get_running_loop()

    def ring(key: Key) -> None:
        loop.call_soon_threadsafe(parts.queue.add, key)

    try:
        await asyncio.to_thread(
            kopf.run,
            registry=handlers.registry(ring, api.url),
            settings=handlers.settings(),
            clusterwide=True,
            stop_flag=stop,
        )
    finally:
        stop.set()


async def _is_served(api: Api) -> bool:
    try:
        await api.read(f"/apis/{names.API_GROUP}/{names.API_VERSION}")
    except ApiError as error:
        logger.info("looking for the CRD: %s", error)
        return False
    return True


async def _until_first(parts: list[Coroutine[Any, Any, None]]) -> None:
    """Run the parts until the first ends, and stop the others; its error, if any, is raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _identity(pod_name: str) -> str:
    # Unique per life: a restarted container keeps its name, and must not take its own old Lease for its.
    return f"{pod_name}_{uuid.uuid4().hex[:8]}"
