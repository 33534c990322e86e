"""Each request to the API server is counted, and a span of the pass that made it."""

from types import SimpleNamespace

import aiohttp
from prometheus_client import Counter

from guided_operator.telemetry import tracing


def tell(counter: Counter) -> aiohttp.TraceConfig:
    """Return what has a session's requests counted by method and status, and traced."""

    async def began(
        _: aiohttp.ClientSession, context: SimpleNamespace, begin: aiohttp.TraceRequestStartParams
    ) -> None:
        context.span = tracing.request(begin.method, begin.url.path)

    async def ended(
        _: aiohttp.ClientSession, context: SimpleNamespace, end: aiohttp.TraceRequestEndParams
    ) -> None:
        counter.labels(end.method, str(end.response.status)).inc()
        tracing.answered(context.span, end.response.status)

    async def broke(
        _: aiohttp.ClientSession, context: SimpleNamespace, end: aiohttp.TraceRequestExceptionParams
    ) -> None:
        counter.labels(end.method, "0").inc()
        tracing.answered(context.span, 0, end.exception)

    told = aiohttp.TraceConfig()
    told.on_request_start.append(began)
    told.on_request_end.append(ended)
    told.on_request_exception.append(broke)
    return told
