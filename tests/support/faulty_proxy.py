"""A proxy between the operator and the API server that does to requests what networks and servers do.

The operator reaches it by plain HTTP and with its own token, which the proxy hands on over TLS. It runs in a
thread of its own. `rule` is asked for each request what is to become of it; None: it goes through.
"""

import asyncio
import base64
import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from devtools.process import free_ports

from support.cluster import Cluster

_HOP = {"host", "connection", "transfer-encoding", "content-length"}  # ours to say; bodies go as they are


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of a request: an answer of the proxy's own, or a delay.

    `status` 0 lets it through after `delay_s`; `ends_after_s` ends a watch so soon; `text` is an answer that
    no API server gives.
    """

    status: int = 0
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    ends_after_s: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came, at so many monotonic seconds."""

    at: float
    method: str
    path: str
    is_watch: bool


Rule = Callable[[Asked], Fault | None]


class FaultyProxy:
    """The proxy.

    Attributes
    ----------
    rule
        What becomes of each request; None: all go through.
    asked
        Every request so far.
    endpoint
        Where it listens.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._server = cluster.url
        admin = yaml.safe_load(cluster.kubeconfig.read_text())
        authority = admin["clusters"][0]["cluster"]
        self._tls = ssl.create_default_context(
            cafile=authority.get("certificate-authority"), cadata=_decoded(authority)
        )
        [port] = free_ports(1)
        self._port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self.rule: Rule | None = None
        self.asked: list[Asked] = []
        self._loop = asyncio.new_event_loop()
        self._streams: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def cut_streams(self) -> None:
        """Break every request off that is under way."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._streams])

    def rate(self, seconds: float) -> float:
        """Return the requests per second of the last so many seconds."""
        since = time.monotonic() - seconds
        return sum(asked.at >= since for asked in self.asked) / seconds

    @contextmanager
    def running(self) -> Iterator["FaultyProxy"]:
        """Serve while the context lasts."""
        self._thread.start()
        stop = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(stop(), self._loop).result(20)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    async def _start(self) -> Callable[[], Any]:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0), auto_decompress=False
        )
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port).start()

        async def stop() -> None:
            for task in self._streams:
                task.cancel()
            await runner.cleanup()
            await self._session.close()
            await asyncio.sleep(0.25)  # connections close behind these

        return stop

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            asked = Asked(time.monotonic(), request.method, request.path, "watch" in request.query)
            self.asked.append(asked)
            fault = (self.rule and self.rule(asked)) or Fault()
            return await self._answer(request, fault)
        except asyncio.CancelledError:
            # As a server that was killed: no end of the answer, no goodbye.
            if request.transport is not None:
                request.transport.abort()
            raise
        finally:
            self._streams.discard(task)

    async def _answer(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        await asyncio.sleep(fault.delay_s)
        if fault.text:
            return web.Response(text=fault.text, status=fault.status)
        if fault.status:
            body = {
                "kind": "Status",
                "status": "Failure",
                "message": f"the proxy says {fault.status}",
                "reason": fault.reason,
                "code": fault.status,
            }
            return web.json_response(body, status=fault.status, headers=fault.headers)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        async with self._session.request(
            request.method,
            f"{self._server}{request.raw_path}",
            headers=headers,
            data=await request.read() or None,
            skip_auto_headers={"Content-Type"},
            timeout=aiohttp.ClientTimeout(total=None),
        ) as given:
            return await self._hand_back(request, given, fault)

    async def _hand_back(
        self, request: web.Request, given: aiohttp.ClientResponse, fault: Fault
    ) -> web.StreamResponse:
        passed = {name: value for name, value in given.headers.items() if name.lower() not in _HOP}
        answer = web.StreamResponse(status=given.status, headers=passed)
        with contextlib.suppress(ConnectionError):  # who asked has gone
            await answer.prepare(request)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(fault.ends_after_s):
                    async for data in given.content.iter_any():
                        await answer.write(data)
            await answer.write_eof()
        return answer


def _decoded(authority: dict[str, Any]) -> str | None:
    data = authority.get("certificate-authority-data")
    return base64.b64decode(data).decode() if data else None
