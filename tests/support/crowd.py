"""Strangers on an HTTP port: connections that never finish a request, and many scrapes at once."""

import asyncio
import contextlib
import resource
import ssl
from collections.abc import AsyncIterator, Iterator

import httpx

from guided_contract import processes

CONNECTIONS = 2000
_HALF = b"GET /metrics HTTP/1.1\r\nHost: pod\r\nX-Slow: "
_AT_ONCE = 100
_TIMEOUT_S = 30.0
_TLS = ssl.create_default_context()  # 50 ms for each client that makes its own, of the one loop


@contextlib.contextmanager
def few_files(soft: int = 256) -> Iterator[None]:
    """Have processes that start meanwhile begin with so few files, fewer than strangers connect."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        processes.raise_file_limit()  # strangers' ends of their connections are ours


@contextlib.asynccontextmanager
async def half_open(port: int, count: int = CONNECTIONS) -> AsyncIterator[None]:
    """Hold this end of so many connections, each with half a request."""
    writers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(count // _AT_ONCE):
            made = await asyncio.gather(
                *(asyncio.open_connection("127.0.0.1", port) for _ in range(_AT_ONCE))
            )
            for _, writer in made:
                writer.write(_HALF)
                writers.append(writer)
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


async def scraped(port: int, count: int) -> list[int]:
    """Ask for /metrics so often, 100 at a time, each on a connection of its own; return the statuses."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def scrape() -> int:
        async with room:
            return await asked(port, "/metrics")

    return await asyncio.gather(*(scrape() for _ in range(count)))


async def asked(port: int, path: str) -> int:
    """Return the status of an answer, asked for as the kubelet does: on a new connection."""
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, verify=_TLS) as client:
        return (await client.get(f"http://127.0.0.1:{port}{path}")).status_code
