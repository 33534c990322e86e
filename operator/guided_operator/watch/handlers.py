"""kopf watches GuidedModels and hands over each event; nothing else here uses kopf.

kopf writes nothing: no events are posted, a handler of raw events needs no finalizer or annotation, and of
those that an object has kopf sees none (`kopf_session`).
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import kopf

from guided_contract import names
from guided_operator.kube.api_errors import ApiError
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.queue import Backoff
from guided_operator.watch.guided_models import Models
from guided_operator.watch.kopf_session import PAGE_MODELS, model_of, open_session

logger = logging.getLogger(__name__)

_CRD_POLL_S: Final = 5.0
_LASTED_S: Final = 600.0  # a watch that held so long began well

Take = Callable[[str | None, dict[str, Any]], None]


async def watch(api: ApiServer, namespaces: Sequence[str], models: Models) -> None:
    """Watch the GuidedModels of these namespaces, or of all, for ever.

    kopf looks for their CRD only when it starts, and gives up when the API server refuses its watch, so it
    is started when the CRD is there, and again whenever it ends.
    """
    backoff, failures, loop = Backoff(first_s=1.0, last_s=30.0), 0, asyncio.get_running_loop()
    while True:
        await _served(api)
        began_s = loop.time()
        try:
            await _run(api.url, namespaces, models.take)
            why = "it ended"
        except Exception as error:  # noqa: BLE001 - kopf's own errors have no public names
            why = f"{type(error).__name__}: {error}"
        models.broken += 1
        failures = 1 if loop.time() - began_s > _LASTED_S else failures + 1
        delay_s = backoff.delay_s(failures)
        logger.error("watch of GuidedModels failed; retrying in %.1f s: %s", delay_s, why)
        await asyncio.sleep(delay_s)
        models.look_soon()  # what vanished meanwhile, kopf will not mention


async def _run(server: str, namespaces: Sequence[str], take: Take) -> None:
    # In a thread with a loop of its own: when kopf ends it waits for, and then cancels, every task of its
    # loop, and it takes the process's signals, unless it is not in the main thread.
    here = asyncio.get_running_loop()
    there: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    asked_to_end = threading.Event()

    def take_here(event: str | None, item: dict[str, Any]) -> None:
        here.call_soon_threadsafe(take, event, item)

    async def operate() -> None:
        # An event of this loop: kopf would wait for any other in a thread, and that would keep it from
        # ending when its watch has failed.
        stop = asyncio.Event()
        there.append((asyncio.get_running_loop(), stop))
        if asked_to_end.is_set():
            return
        await kopf.operator(
            registry=registry(take_here, server),
            settings=settings(),
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
        )

    running = asyncio.create_task(asyncio.to_thread(asyncio.run, operate()))
    try:
        await asyncio.shield(running)
    finally:
        asked_to_end.set()
        for loop, stop in there:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(stop.set)


async def _served(api: ApiServer) -> None:
    """Wait until the API server serves GuidedModels."""
    while True:
        try:
            await api.read(f"/apis/{names.API_GROUP}/{names.API_VERSION}")
        except ApiError as error:
            logger.warning("the CRD %s.%s is not installed yet: %s", names.PLURAL, names.API_GROUP, error)
            await asyncio.sleep(_CRD_POLL_S)
        else:
            return


def registry(take: Take, server: str) -> kopf.OperatorRegistry:
    """Return the handlers, which hand each event of a GuidedModel to `take`: its type and the object.

    `server` is the API server's URL; kopf by itself asks DNS for kubernetes.default.svc, and a cluster
    without DNS, or whose DNS is down, would stay unseen.
    """
    handlers = kopf.OperatorRegistry()

    @kopf.on.event(names.API_GROUP, names.API_VERSION, names.PLURAL, registry=handlers)  # type: ignore[untyped-decorator]  # kopf has no types
    def changed(event: dict[str, Any], **_: Any) -> None:
        take(event["type"], model_of(event["object"]))  # a returned value would be written to the object

    @kopf.on.login(registry=handlers)  # type: ignore[untyped-decorator]  # kopf has no types
    async def login(**context: Any) -> kopf.AiohttpSession | None:
        known = kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)
        if known is None:
            return None
        session = open_session(
            known.as_http_headers(), known.as_ssl_context(), known.proxy_url, trust_env=known.trust_env
        )
        return kopf.AiohttpSession(server=server, expiration=known.expiration, aiohttp_session=session)

    return handlers


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings: read only, and without looking for CRDs and namespaces that it may not see."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.peering.standalone = True  # who acts is decided by our Lease
    # A watch ends by itself so often, which bounds how long a dead connection goes unnoticed.
    chosen.watching.server_timeout = 150
    chosen.watching.client_timeout = 160
    chosen.watching.chunk_size = PAGE_MODELS
    return chosen
