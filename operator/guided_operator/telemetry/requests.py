"""Each request to the API server is counted."""

from types import SimpleNamespace

import aiohttp
from prometheus_client import Counter


def tell(counter: Counter) -> aiohttp.TraceConfig:
    """Return what has a session's requests counted by method and status; 0: no answer."""

    async def ended(
        _: aiohttp.ClientSession, _context: SimpleNamespace, end: aiohttp.TraceRequestEndParams
    ) -> None:
        counter.labels(end.method, str(end.response.status)).inc()

    async def broke(
        _: aiohttp.ClientSession, _context: SimpleNamespace, end: aiohttp.TraceRequestExceptionParams
    ) -> None:
        counter.labels(end.method, "0").inc()

    told = aiohttp.TraceConfig()
    told.on_request_end.append(ended)
    told.on_request_exception.append(broke)
    return told
