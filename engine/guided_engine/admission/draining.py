"""Closes, while a pod drains, connections that clients keep without asking anything: no response can."""

import asyncio
import weakref
from typing import Any, Final

from guided_contract.config import PodConfig

_LOOK_S: Final = 0.5
# Whoever asks at the moment of the close loses a request. So it is once clients have given the connection up:
# httpx, and so OpenAI's, does after 5 s, aiohttp after 15 (docs/decisions/0024-drain.md).
_IDLE_S: Final = 16.0


async def close_idle(app: Any, pod: PodConfig, endpoint_lag_s: float) -> None:
    """Once the pod drains, and endpoints are told of it, keep closing connections without a request.

    Never returns. `app` is vLLM's application.
    """
    begun_s = None
    # On which nothing was asked yet, and when each was seen first: uvicorn does not know.
    unused: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
    while True:
        await asyncio.sleep(_LOOK_S)
        if not pod.is_draining:
            continue
        now_s = asyncio.get_running_loop().time()
        begun_s = now_s if begun_s is None else begun_s
        for connection in _connections(app):
            since_s = unused.setdefault(connection, now_s)
            if connection.cycle is not None:
                # Set when a response has ended, unset when a request comes.
                timer, kept_s = connection.timeout_keep_alive_task, float(connection.timeout_keep_alive)
                since_s = now_s if timer is None else timer.when() - kept_s
            if now_s - begun_s >= endpoint_lag_s and now_s - since_s >= _IDLE_S:
                connection.shutdown()


def _connections(app: Any) -> list[Any]:
    """Return the connections of vLLM's HTTP server, which is uvicorn's."""
    server = getattr(app.state, "server", None)
    known = server.server_state.connections if server is not None else ()
    return [one for one in known if hasattr(one, "timeout_keep_alive")]  # others are web sockets
