"""Getting a sidecar's page from whoever answers: bounded in time and bytes, and never followed elsewhere."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from guided_contract import names, status
from guided_operator.watch import page_fetch
from guided_operator.watch.page_fetch import PageError, fetch

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PAGE = status.encode(status.PodStatus(ready=True))


async def serve(handler: Handler, address: str) -> web.AppRunner:
    application = web.Application()
    application.add_routes([web.get("/status", handler)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, address, names.SIDECAR_PORT).start()
    return runner


async def test_page_is_fetched() -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(body=PAGE)

    runner = await serve(page, "127.78.0.1")
    assert await fetch("127.78.0.1") == PAGE
    await runner.cleanup()


async def test_silence_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_fetch, "TIMEOUT_S", 0.2)

    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    runner = await serve(silent, "127.78.0.3")
    with pytest.raises(PageError, match="did not answer"):
        await fetch("127.78.0.3")
    await runner.cleanup()


async def test_redirect_is_not_followed() -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/latest")

    runner = await serve(elsewhere, "127.78.0.4")
    with pytest.raises(PageError, match="answered 302"):
        await fetch("127.78.0.4")
    await runner.cleanup()


async def test_nobody_there() -> None:
    with pytest.raises(PageError, match="did not answer"):
        await fetch("127.78.0.5")


@contextlib.asynccontextmanager
async def saying(address: str, first: bytes, for_ever: bytes = b"") -> AsyncIterator[None]:
    """Answer whoever connects with this, and then with that until it goes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(first)
            while for_ever:
                writer.write(for_ever)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, address, names.SIDECAR_PORT):
        yield


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("first", "for_ever", "said"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, "larger than"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 1000, "larger than"),
        (OK, b"a: b\r\n" * 1000, "larger than"),
        (OK + b"\r\n", b" " * 1000, "larger than"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"", "no Content-Length"),
        (OK + b"\r\n" + b" " * (page_fetch.MAX_PAGE_BYTES + 1), b"", "larger than"),
        (b"", b"", "not answer in HTTP"),
        (b"HTTP/1.1 2\xb200 OK\r\n\r\n", b"", "not answer in HTTP"),
    ],
)
async def test_no_answer_is_read_further_than_a_page(first: bytes, for_ever: bytes, said: str) -> None:
    """It is its bytes that end it, and not the time: a client library goes on with these, in vain."""
    async with saying("127.78.0.6", first, for_ever):
        with pytest.raises(PageError, match=said):
            await fetch("127.78.0.6")
