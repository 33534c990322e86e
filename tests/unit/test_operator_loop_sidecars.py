"""Reading sidecars: on change and now and then, bounded, and never believed blindly."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from guided_contract import names, status
from guided_operator import sidecars
from guided_operator.sidecars import HttpFetch, PageError, SidecarReader
from support.observed import pod

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PAGE = status.encode(status.PodStatus(ready=True))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Pods:
    """Stands for the network: counts reads, answers with `page`."""

    def __init__(self) -> None:
        self.reads = 0
        self.page: bytes | None = PAGE

    async def __call__(self, address: str) -> bytes:
        self.reads += 1
        if self.page is None:
            raise PageError(f"no answer from {address}")
        return self.page


async def test_page_is_read_on_change_and_when_it_is_old() -> None:
    network, clock = Pods(), Clock()
    reader = SidecarReader(network, clock)
    for _ in range(3):
        pages = await reader.read([pod("a", "r")])
    assert pages["uid-a"].status == status.PodStatus(ready=True)
    assert network.reads == 1
    await reader.read([pod("a", "r", version="2")])
    assert network.reads == 2
    due = reader.next_look_s(["uid-a"])
    assert due is not None
    assert 0.8 * sidecars.READY_PERIOD_S <= due <= 1.2 * sidecars.READY_PERIOD_S
    clock.now += due + 0.1
    await reader.read([pod("a", "r", version="2")])
    assert network.reads == 3


@pytest.mark.parametrize(
    ("pod_ready", "page"),
    [(False, PAGE), (True, None), (True, status.encode(status.PodStatus(ready=False)))],
    ids=["pod not ready", "silent", "sidecar not ready"],
)
async def test_pod_that_is_not_well_is_looked_at_more_often(*, pod_ready: bool, page: bytes | None) -> None:
    network = Pods()
    network.page = page
    reader = SidecarReader(network, Clock())
    await reader.read([pod("a", "r", ready=pod_ready)])
    due = reader.next_look_s(["uid-a"])
    assert due is not None
    assert due <= 1.2 * sidecars.STARTING_PERIOD_S


async def test_pods_that_cannot_answer_are_not_asked() -> None:
    network = Pods()
    reader = SidecarReader(network, Clock())
    pages = await reader.read(
        [
            pod("a", "r", ip=""),
            pod("b", "r", phase="Pending"),
            pod("c", "r", terminating=True),
            pod("d", "r", phase="Failed"),
        ]
    )
    assert (pages, network.reads) == ({}, 0)
    assert reader.next_look_s(["uid-a", "uid-b"]) is None


@pytest.mark.parametrize("page", [None, b"", b"{}", b"[" * 100_000, b'{"ready": "yes"}', b"\xff"])
async def test_nonsense_is_an_error_and_not_a_status(page: bytes | None) -> None:
    network = Pods()
    network.page = page
    pages = await SidecarReader(network, Clock()).read([pod("a", "r")])
    assert pages["uid-a"].status is None
    assert pages["uid-a"].error


async def test_pods_that_are_gone_are_forgotten() -> None:
    network = Pods()
    reader = SidecarReader(network, Clock())
    await reader.read([pod("a", "r"), pod("b", "r")])
    reader.forget({"uid-a"}, {"uid-a", "uid-b"})
    assert reader.next_look_s(["uid-b"]) is None
    assert reader.next_look_s(["uid-a"]) is not None


class TestHttp:
    @pytest.fixture
    async def fetch(self) -> AsyncIterator[HttpFetch]:
        async with aiohttp.ClientSession() as session:
            yield HttpFetch(session)

    @staticmethod
    async def serve(handler: Handler, address: str) -> web.AppRunner:
        application = web.Application()
        application.add_routes([web.get("/status", handler)])
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, address, names.SIDECAR_PORT).start()
        return runner

    async def test_page_is_fetched(self, fetch: HttpFetch) -> None:
        async def page(_: web.Request) -> web.Response:
            return web.Response(body=PAGE)

        runner = await self.serve(page, "127.78.0.1")
        assert await fetch("127.78.0.1") == PAGE
        await runner.cleanup()

    async def test_endless_page_is_cut_off(self, fetch: HttpFetch) -> None:
        async def endless(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65536)

        runner = await self.serve(endless, "127.78.0.2")
        with pytest.raises(PageError, match="larger than"):
            await fetch("127.78.0.2")
        await runner.cleanup()

    async def test_silence_is_cut_off(self, fetch: HttpFetch, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sidecars, "TIMEOUT_S", 0.2)

        async def silent(_: web.Request) -> web.Response:
            await asyncio.sleep(60)
            return web.Response()

        runner = await self.serve(silent, "127.78.0.3")
        with pytest.raises(PageError, match="did not answer"):
            await fetch("127.78.0.3")
        await runner.cleanup()

    async def test_redirect_is_not_followed(self, fetch: HttpFetch) -> None:
        async def elsewhere(_: web.Request) -> web.Response:
            raise web.HTTPFound("http://169.254.169.254/latest")

        runner = await self.serve(elsewhere, "127.78.0.4")
        with pytest.raises(PageError, match="answered 302"):
            await fetch("127.78.0.4")
        await runner.cleanup()

    async def test_nobody_there(self, fetch: HttpFetch) -> None:
        with pytest.raises(PageError, match="did not answer"):
            await fetch("127.78.0.5")
