"""The operator's entry point: connects the parts, and ends the process when one of them ends."""

import asyncio
import datetime as dt
import functools
import logging
import signal
import sys
import time
import uuid
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from guided_contract.tasks import live
from guided_operator import health
from guided_operator.builders.pod_paths import USER_ID, cluster_site
from guided_operator.kube import kinds
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.lease import Lease, LeaseLostError
from guided_operator.kube.queue import WorkQueue
from guided_operator.kube.store import Store
from guided_operator.own_events import OwnEvents
from guided_operator.policy.arguments import ArgumentLimits
from guided_operator.policy.installation_limits import Limits
from guided_operator.reconcile.apply import Applier
from guided_operator.reconcile.conditions.progress_deadline import Progress
from guided_operator.reconcile.loop import Reconciler, Workers, work_together
from guided_operator.reconcile.observe import Observer
from guided_operator.settings import OperatorSettings, SettingsError
from guided_operator.telemetry import logs, requests, tracing
from guided_operator.telemetry.metrics import OperatorMetrics, Sources
from guided_operator.watch import handlers
from guided_operator.watch.grammar_sources import GrammarSources
from guided_operator.watch.guided_models import Models
from guided_operator.watch.informers import Watches
from guided_operator.watch.page_fetch import fetch
from guided_operator.watch.sidecar_status import SidecarReader

logger = logging.getLogger(__name__)

LEASE_NAME: Final = "guidedmodel-operator"
# A change of a child is followed by others: a pod starts, its Deployment counts it. One pass for all of them.
_GATHER_S: Final = 0.2
_EXIT_LOST: Final = 3  # told apart from a crash in the container's last state


def main() -> None:
    """Run the operator until TERM; the exit status is 0 then, and not 0 if it had to give up."""
    try:
        settings = OperatorSettings()
    except SettingsError as error:
        sys.exit(str(error))
    logs.configure(settings.log_level, settings.log_format)
    try:
        with tracing.exporting(settings.otlp_endpoint, settings.trace_sampling, settings.pod_name):
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
        metrics = OperatorMetrics()
        api = await stack.enter_async_context(ApiServer.connected(requests.tell(metrics.requests)))
        parts = assemble(settings, api, metrics)
        await stack.enter_async_context(
            health.serve(settings.health_host, settings.health_port, parts.is_ready, metrics.page)
        )
        stack.push_async_callback(parts.lease.release)
        await _until_first([_ended(asked_to_end), _lead(parts, api, settings.namespaces)])


@dataclass(frozen=True, slots=True)
class Parts:
    """The operator, put together and not yet running."""

    queue: WorkQueue
    models: Models
    watches: Watches
    lease: Lease
    sidecars: SidecarReader
    own_events: OwnEvents
    workers: Workers
    worker_count: int

    def is_ready(self) -> bool:
        """Return whether another replica leads, or this one does and has seen what there is."""
        return self.lease.waits or (self.lease.is_held() and self.watches.is_synced())


def assemble(settings: OperatorSettings, api: ApiServer, metrics: OperatorMetrics) -> Parts:
    """Put the parts together."""
    queue, store, clock = WorkQueue(time.monotonic), Store(), time.monotonic
    sources = GrammarSources(api)
    sidecars = SidecarReader(fetch, clock, queue.add)
    models = Models(api, store, queue.add, settings.namespaces)
    watches = Watches(
        api, store, sources, functools.partial(queue.add, delay_s=_GATHER_S), settings.namespaces
    )
    lease = Lease(api, settings.namespace, LEASE_NAME, _identity(settings.pod_name), clock=_lease_clock)
    leader_api = api.bounded(lease.bound_s)
    applier = Applier(leader_api, watches.take_written)
    now = functools.partial(dt.datetime.now, dt.UTC)
    reconciler = Reconciler(
        api=leader_api,
        models=models,
        observer=Observer(models, store, watches, sidecars, sources, api),
        applier=applier,
        site=cluster_site(
            settings.plugin_image,
            settings.namespace,
            user_id=USER_ID if settings.user_ids == "Fixed" else None,
            hub_endpoint=settings.hub_endpoint,
            plugin_pull_policy=settings.plugin_pull_policy,
            pull_secrets=settings.pull_secrets,
        ),
        limits=Limits(
            settings.allowed_images,
            settings.allowed_models,
            settings.remote_code,
            settings.proxies,
            ArgumentLimits(settings.arguments_allow, settings.arguments_deny),
            settings.processor_factories,
        ),
        now=now,
        condition_counts=metrics.condition_counts,
        replica_counts=metrics.replica_counts,
        progress=Progress(clock),
    )
    metrics.attach(
        Sources(
            queue_depth=queue.depth,
            leads=lease.is_held,
            unsettled=lambda: applier.unsettled,
            forbidden=watches.forbidden,
            watch_failures=lambda: {**watches.failures(), kinds.MODEL.name: models.broken},
            unreadable=watches.unreadable,
        )
    )
    workers = Workers(queue, reconciler, metrics)
    own_events = OwnEvents(leader_api, settings.namespace, LEASE_NAME, watches.unseen, now)
    return Parts(queue, models, watches, lease, sidecars, own_events, workers, settings.workers)


def _lease_clock() -> float:
    # Goes on while the machine sleeps, where the usual one stands still and the Lease would seem fresh.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def _ended(asked_to_end: asyncio.Event) -> None:
    await asked_to_end.wait()


async def _lead(parts: Parts, api: ApiServer, namespaces: Sequence[str]) -> None:
    """Wait for the Lease, then watch and act for as long as it is held."""
    await parts.lease.acquire()
    async with asyncio.TaskGroup() as group:
        group.create_task(parts.lease.keep())
        group.create_task(parts.watches.run())
        group.create_task(live("models", parts.models.run))
        group.create_task(handlers.watch(api, namespaces, parts.models))
        group.create_task(live("own-events", parts.own_events.run))
        await parts.watches.synced()
        group.create_task(live("sidecar-pages", parts.sidecars.run))
        group.create_task(work_together(parts.workers, parts.worker_count))


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
