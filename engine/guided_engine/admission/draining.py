"""What an API server of a pod that drains tells its clients: that each answer is its connection's last.

Clients keep connections, and a connection once made goes to this pod for ever, whatever the endpoints say.
So they are asked, in HTTP's own words, to make a new one, which goes elsewhere. What comes over an old one
meanwhile is answered as ever.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Final

from guided_contract.config import DrainConfig
from guided_engine.admission import idle_connections, response_headers

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

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
    """Once the pod drains, keep closing idle connections; never returns.

    Clients may hold connections without a request, which no response can close.

    Parameters
    ----------
    app
        vLLM's application.
    draining
        File that exists from the moment the pod was told to stop.
    """
    since_s = None
    idle = idle_connections.Idle(app)
    while True:
        now_s = asyncio.get_running_loop().time()
        if since_s is None and _is_there(draining):
            since_s = now_s
        if since_s is not None and now_s - since_s >= config.endpoint_lag_s:
            idle.close(_IDLE_S, now_s)
        elif since_s is not None:
            idle.look(now_s)
        await asyncio.sleep(_LOOK_S)


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)  # never an error, whatever it is
