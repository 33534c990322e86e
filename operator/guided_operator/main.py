"""The operator's entry point: connects the parts, and ends the process when one of them ends."""

import asyncio
import datetime as dt
import functools
import logging
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from guided_contract.tasks import live
from guided_operator import health
from guided_operator.builders.pod_paths import USER_ID, Site
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ApiError
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.key import Key
from guided_operator.kube.lease import Lease, LeaseLostError
from guided_operator.policy.arguments import ArgumentLimits
from guided_operator.policy.installation_limits import Limits
from guided_operator.reconcile.apply import Applier
from guided_operator.reconcile.conditions.progress_deadline import Progress
from guided_operator.reconcile.loop import Loops, Reconciler
from guided_operator.reconcile.observe import Observer
from guided_operator.settings import OperatorSettings, SettingsError
from guided_operator.telemetry import logs, tracing
from guided_operator.telemetry.metrics import OperatorMetrics, Sources
from guided_operator.watch import kopf_setup
from guided_operator.watch.cache import Cache
from guided_operator.watch.informers import Informers
from guided_operator.watch.page_fetch import fetch
from guided_operator.watch.sidecar_status import SidecarReader

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
    _take_signals(asked_to_end)
    async with AsyncExitStack() as stack:
        metrics = OperatorMetrics()
        api = await stack.enter_async_context(ApiServer.connected(metrics.of_requests()))
        parts = assemble(settings, api, metrics)
        await stack.enter_async_context(
            health.serve(settings.health_host, settings.health_port, parts.is_ready, metrics.page)
        )
        stack.push_async_callback(parts.lease.release)
        async with asyncio.TaskGroup() as group:
            leading = group.create_task(_lead(parts, api, settings.namespaces, asked_to_end))
            await asked_to_end.wait()
            leading.cancel()


@dataclass(frozen=True, slots=True)
class Parts:
    """The operator, put together and not yet running."""

    lease: Lease
    cache: Cache
    informers: Informers
    loops: Loops
    events: kopf_setup.Events

    def is_ready(self) -> bool:
        """Return whether another replica leads, or this one does and has seen what there is."""
        return self.lease.waits or (self.lease.is_held() and self.informers.is_synced())


def assemble(settings: OperatorSettings, api: ApiServer, metrics: OperatorMetrics) -> Parts:
    """Put the parts together."""
    clock = time.monotonic
    lease = Lease(api, settings.namespace, LEASE_NAME, _identity(settings.pod_name), clock=_lease_clock)
    led = api.bounded(lease.bound_s)
    events = kopf_setup.Events()

    def wake(key: Key) -> None:
        loops.wake(key)

    cache = Cache(wake)
    informers = Informers(led, cache, settings.namespaces)
    observer = Observer(cache, informers, SidecarReader(fetch, clock), led, clock)
    applier = Applier(led, observer.take_written)
    reconciler = Reconciler(
        api=led,
        observer=observer,
        applier=applier,
        site=Site(
            settings.plugin_image,
            operator_namespace=settings.namespace,
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
        now=functools.partial(dt.datetime.now, dt.UTC),
        counts=metrics.models,
        progress=Progress(clock),
        warn=events.warn,
    )
    loops = Loops(reconciler, metrics, settings.workers)
    metrics.attach(
        Sources(
            queue_depth=loops.depth,
            leads=lease.is_held,
            unsettled=lambda: applier.unsettled,
            forbidden=informers.forbidden,
            watch_failures=informers.failures,
            unreadable=cache.unreadable,
        )
    )
    return Parts(lease, cache, informers, loops, events)


def _lease_clock() -> float:
    # Goes on while the machine sleeps, where the usual one stands still and the Lease would seem fresh.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _take_signals(asked_to_end: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)


async def _lead(parts: Parts, api: ApiServer, namespaces: Sequence[str], asked_to_end: asyncio.Event) -> None:
    """Wait for the Lease, then watch and act for as long as it is held."""
    await parts.lease.acquire()

    def changed() -> None:
        for key in parts.cache.models():
            parts.loops.wake(key)

    async def watched() -> None:
        await kopf_setup.watch(api, parts.informers.by_path, parts.events, namespaces)
        asked_to_end.set()  # by a signal, before it was taken back

    async with asyncio.TaskGroup() as group:
        group.create_task(parts.lease.keep())
        group.create_task(live("informers", functools.partial(parts.informers.run, changed)))
        await _served(api)
        group.create_task(watched())
        await parts.informers.synced()
        _take_signals(asked_to_end)  # back from kopf, which would wait 5 s for the models' tasks
        parts.loops.begin()


async def _served(api: ApiServer) -> None:
    """Wait until the API server serves GuidedModels: kopf may not see when it does."""
    while True:
        try:
            await api.read(kinds.MODEL.group_path)
        except ApiError as error:
            logger.warning("the CRD of GuidedModels is not installed yet: %s", error)
            await asyncio.sleep(_CRD_POLL_S)
        else:
            return


def _identity(pod_name: str) -> str:
    # Unique per life: a restarted container keeps its name, and must not take its own old Lease for its.
    return f"{pod_name}_{uuid.uuid4().hex[:8]}"
