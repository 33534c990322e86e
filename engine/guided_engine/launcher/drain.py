"""Decides from the kernel's table of TCP connections when the API server has drained.

The table also knows what the API server does not know yet: a connection that waits to be accepted, a request
that is being sent, an answer that has not arrived.
"""

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Final

from guided_contract.config import DrainConfig

_log = logging.getLogger("guided_engine")

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
# include/net/tcp_states.h: ESTABLISHED, SYN_RECV, FIN_WAIT1, CLOSE_WAIT, LAST_ACK, CLOSING. In the others
# there is nothing left to say.
_LIVE: Final = frozenset({"01", "03", "04", "08", "09", "0B"})
_LOOK_S: Final = 0.1
# Clients that keep coming, one by one, are seen within it.
_SILENCE_S: Final = 2.0
_KNOCK_S: Final = 0.5
_ANSWER_S: Final = 5.0


async def wait(config: DrainConfig, port: int) -> None:
    """Return when the server at `port` has drained, or the drain's timeout is over.

    It has when the endpoints' lag is over, in which new requests may still arrive, and nobody has been
    connected for a while.
    """
    clock, lag_s = asyncio.get_running_loop().time, config.endpoint_lag_s
    begun_s = busy_s = clock()
    _log.info("guidedmodel: draining: %d connections", connections(port))
    while (now_s := clock()) - begun_s < lag_s + config.timeout_s:
        if connections(port):
            busy_s = now_s
        if now_s - begun_s >= lag_s and now_s - busy_s >= min(lag_s, _SILENCE_S):
            _log.info("guidedmodel: drained after %.1f s", now_s - begun_s)
            return
        await asyncio.sleep(_LOOK_S)
    _log.warning("guidedmodel: not drained in time: %d connections are cut", connections(port))


async def wait_gone(host: str, port: int, most_s: float) -> None:
    """Return when nothing listens at `host` and `port` any more, after `most_s` seconds at the latest.

    For a node whose ranks the first one needs until it has drained.
    """
    until_s = time.monotonic() + most_s
    with contextlib.suppress(OSError, TimeoutError):
        while (left_s := until_s - time.monotonic()) > 0:
            async with asyncio.timeout(min(_ANSWER_S, left_s)):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
            await asyncio.sleep(_KNOCK_S)


def connections(port: int) -> int:
    """Return the number of live connections to a local port, IPv4 and IPv6."""
    found = 0
    for table in _TABLES:
        with contextlib.suppress(OSError):  # no IPv6
            found += live(Path(table).read_text(), port)
    return found


def live(table: str, port: int) -> int:
    """Return the number of live connections to a local port in a table like /proc/net/tcp."""
    local = f":{port:04X}"
    rows = (line.split(maxsplit=4) for line in table.splitlines()[1:])
    return sum(here.endswith(local) and state in _LIVE for _, here, _, state, _ in rows)
