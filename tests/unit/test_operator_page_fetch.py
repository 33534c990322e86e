"""Getting a sidecar's page from whoever answers: bounded in time and bytes, and never followed elsewhere."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from guided_contract import names, status
from guided_operator.watch import page_fetch
from guided_operator.watch.page_fetch import PageError, fetch

HERE = "127.78.0.1"
PAGE = status.encode(status.PodStatus(ready=True))
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@contextlib.asynccontextmanager
async def saying(first: bytes | None, for_ever: bytes = b"") -> AsyncIterator[None]:
    """Answer whoever connects with this, and then with that until it goes; None: not at all."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(await reader.read() if first is None else first)
            while for_ever:
                writer.write(for_ever)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, HERE, names.SIDECAR_PORT):
        yield


async def test_page_is_fetched() -> None:
    async with saying(OK + f"Content-Length: {len(PAGE)}\r\n\r\n".encode() + PAGE):
        assert await fetch(HERE) == PAGE


async def test_silence_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_fetch, "TIMEOUT_S", 0.2)
    async with saying(None):
        with pytest.raises(PageError, match="did not answer"):
            await fetch(HERE)
    with pytest.raises(PageError, match="did not answer"):  # nobody is there
        await fetch(HERE)


@pytest.mark.parametrize(
    ("first", "for_ever", "said"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\n\r\n", b"", "answered 302"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, "larger than"),
        (CHUNKED, b"1\r\n \r\n" * 1000, "larger than"),
        (OK, b"a: b\r\n" * 1000, "larger than"),
        (OK + b"\r\n", b" " * 1000, "larger than"),
        (CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", b"", "no Content-Length"),
        (OK + b"\r\n" + b" " * (page_fetch.MAX_PAGE_BYTES + 1), b"", "larger than"),
        (b"", b"", "not answer in HTTP"),
        (b"HTTP/1.1 2\xb200 OK\r\n\r\n", b"", "not answer in HTTP"),
    ],
)
async def test_no_answer_is_read_further_than_a_page(first: bytes, for_ever: bytes, said: str) -> None:
    """It is its bytes that end it, and not the time: a client library goes on with these, in vain."""
    async with saying(first, for_ever):
        with pytest.raises(PageError, match=said):
            await fetch(HERE)
