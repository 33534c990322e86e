"""What an API server of a pod that drains tells its clients: that each answer is its connection's last.

Clients keep connections, and a connection once made goes to this pod for ever, whatever the endpoints say.
So they are asked, in HTTP's own words, to make a new one, which goes elsewhere. What comes over an old one
meanwhile is answered as ever.
"""

import asyncio
import os
import weakref
from pathlib import Path
from typing import Any, Final

from starlette.types import Message, Send

from guided_contract.config import DrainConfig
from guided_engine.admission import response_headers

_LOOK_S: Final = 0.5
# Whoever asks at the moment of the close loses a request. So it is once clients have given the connection up:
# httpx, and so OpenAI's, does after 5 s, aiohttp after 15 (docs/decisions/0024-drain.md).
_IDLE_S: Final = 16.0


def closing_connections(send: Send, draining: Path) -> Send:
    """Return an ASGI `send` that adds `Connection: close` to responses while the file `draining` exists."""

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start" and _is_there(draining):
            message = response_headers.added(message, "connection", "close")
        await send(message)

    return closing


async def close_idle(app: Any, config: DrainConfig, draining: Path) -> None:
    """Once the pod drains, keep closing connections without a request, which no response can close.

    Never returns.

    Parameters
    ----------
    app
        vLLM's application.
    draining
        File that exists from the moment the pod was told to stop.
    """
    begun_s = None
    # On which nothing was asked yet, and when each was seen first: uvicorn does not know.
    unused: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
    while True:
        await asyncio.sleep(_LOOK_S)
        if not _is_there(draining):
            continue
        now_s = asyncio.get_running_loop().time()
        begun_s = now_s if begun_s is None else begun_s
        for connection in _connections(app):
            since_s = unused.setdefault(connection, now_s)
            if connection.cycle is not None:
                # Set when a response has ended, unset when a request comes.
                timer, kept_s = connection.timeout_keep_alive_task, float(connection.timeout_keep_alive)
                since_s = now_s if timer is None else timer.when() - kept_s
            if now_s - begun_s >= config.endpoint_lag_s and now_s - since_s >= _IDLE_S:
                connection.shutdown()


def _connections(app: Any) -> list[Any]:
    """Return the connections of vLLM's HTTP server, which is uvicorn's."""
    server = getattr(app.state, "server", None)
    known = server.server_state.connections if server is not None else ()
    return [one for one in known if hasattr(one, "timeout_keep_alive")]  # others are web sockets


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)  # never an error, whatever it is
