"""A port that strangers crowd: who is let go, and that everybody else is answered."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from guided_contract import http_port
from guided_contract.http_port import HttpPort, Recent, answer_once

MOST = 8
_ASK = b"GET /livez HTTP/1.1\r\nHost: pod\r\n"


class Served:
    """A port with one page, which is held back until `let` is set."""

    def __init__(self, deadline_s: float) -> None:
        self.number = unused_port()
        self.let = asyncio.Event()
        self.let.set()
        app = web.Application()
        app.on_response_prepare.append(answer_once)
        app.router.add_get("/livez", self._live)
        runner = web.AppRunner(app, access_log=None)
        self.port = HttpPort(runner, "127.0.0.1", self.number, most_connections=MOST, deadline_s=deadline_s)

    async def _live(self, _: web.Request) -> web.Response:
        await self.let.wait()
        return web.Response(text="live\n")

    async def connect(self, said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        writer.write(said)
        return reader, writer

    async def ask(self) -> bytes:
        """Return all that comes until the port ends the connection."""
        reader, writer = await self.connect(_ASK + b"\r\n")
        try:
            return await reader.read()
        finally:
            writer.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served(deadline_s=60)
    await made.port.start()
    yield made
    await made.port.stop()


async def _is_cut(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read()
    except ConnectionError:
        return True


async def test_a_connection_ends_with_its_answer(served: Served) -> None:
    answer = await served.ask()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"Connection: close\r\n" in answer
    assert answer.endswith(b"live\n")


@pytest.mark.parametrize(
    "more",
    [
        b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 10_000,
        b"Content-Length: 99999999\r\n\r\n" + b"x" * 60_000,
        b"\r\n" + (_ASK + b"\r\n") * 1_500,
    ],
    ids=["chunks", "body", "requests"],
)
async def test_who_says_more_than_a_request_is_let_go(served: Served, more: bytes) -> None:
    """It took all of the process' time to read on: 64 strangers kept probes from being answered for ever."""
    served.let.clear()
    reader, writer = await served.connect(_ASK + more)
    async with asyncio.timeout(10):
        assert await _is_cut(reader)
    writer.transport.abort()
    served.let.set()
    assert (await served.ask()).endswith(b"live\n")


async def test_one_too_many_ends_the_oldest(served: Served) -> None:
    held = [await served.connect(_ASK) for _ in range(MOST)]
    for _ in range(3):
        assert (await served.ask()).endswith(b"live\n")
    assert await _is_cut(held[0][0])
    # An answered one has given its place back: the others are still there, and are answered.
    for reader, writer in held[1:]:
        writer.write(b"\r\n")
        assert (await reader.read()).endswith(b"live\n")
    for _, writer in held:
        writer.close()


async def test_more_than_it_takes_are_answered_in_turn(served: Served) -> None:
    answers = await asyncio.gather(*(served.ask() for _ in range(20 * MOST)))
    assert all(answer.endswith(b"live\n") for answer in answers)


@pytest.mark.parametrize("said", [b"", _ASK, _ASK + b"\r\n"], ids=["nothing", "half", "all, unanswered"])
async def test_a_deadline_ends_what_is_not_done(said: bytes) -> None:
    served = Served(deadline_s=0.05)
    served.let.clear()
    await served.port.start()
    reader, writer = await served.connect(said)
    assert await _is_cut(reader)
    served.let.set()
    writer.close()
    await served.port.stop()


async def test_it_ends_with_connections_open(served: Served) -> None:
    reader, writer = await served.connect(_ASK)
    assert (await served.ask()).endswith(b"live\n")
    await served.port.stop()
    assert await _is_cut(reader)
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await served.connect(_ASK)


async def test_a_taken_port_is_told(served: Served) -> None:
    other = HttpPort(web.AppRunner(web.Application()), "127.0.0.1", served.number)
    with pytest.raises(OSError, match="in use"):
        await other.start()
    await other.stop()


def test_a_page_is_made_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = 100.0, 0

    def make() -> bytes:
        nonlocal made
        made += 1
        return b"page %d" % made

    monkeypatch.setattr(http_port.time, "monotonic", lambda: now)
    page = Recent(make)
    assert [page() for _ in range(500)] == [b"page 1"] * 500
    now += 0.9
    assert page() == b"page 1"
    now += 0.2
    assert page() == b"page 2"
