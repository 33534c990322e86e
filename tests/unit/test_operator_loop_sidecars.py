"""Reading sidecars: on change and now and then, bounded, and never believed blindly."""

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import AsyncIterator, Mapping

import pytest

from guided_contract import names, status
from guided_operator.kube.key import Key
from guided_operator.kube.pod_view import PodView
from guided_operator.watch import page_fetch, sidecar_status
from guided_operator.watch.page_fetch import PageError, fetch
from guided_operator.watch.sidecar_status import Page, SidecarReader
from support.observed import pod

KEY = Key("ns", "m")
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


class Following:
    """A reader, and the pages that passes see."""

    def __init__(self) -> None:
        self.network, self.clock = Pods(), Clock()
        self.reader = SidecarReader(self.network, self.clock)

    async def read(self, *pods: PodView, grammars: frozenset[str] = frozenset()) -> Mapping[str, Page]:
        """Read what is due, and return the pages."""
        await self.reader.read(KEY, pods, grammars)
        return self.reader.pages(KEY, pods)


@pytest.fixture
def following() -> Following:
    return Following()


async def test_page_is_read_when_its_pod_or_the_grammars_changed(following: Following) -> None:
    for _ in range(3):
        pages = await following.read(pod("a", "r"))
    assert pages["uid-a"].status == status.PodStatus(ready=True)
    assert following.network.reads == 1
    await following.read(pod("a", "r", version="2"))
    assert following.network.reads == 2
    await following.read(pod("a", "r", version="2"), grammars=frozenset({"g"}))
    assert following.network.reads == 3


async def test_page_that_says_the_same_is_read_now_and_then_and_is_no_news(following: Following) -> None:
    await following.read(pod("a", "r"))
    for reads in (2, 3):
        due_s = following.reader.due_s(KEY, [pod("a", "r")])
        assert 0.79 < due_s / sidecar_status.READY_PERIOD_S < 1.21
        following.clock.now += due_s
        assert not await following.reader.read(KEY, [pod("a", "r")])
        assert following.network.reads == reads


@pytest.mark.parametrize("page", [None, status.encode(status.PodStatus(ready=False))], ids=["none", "other"])
async def test_page_that_says_something_else_is_news(following: Following, page: bytes | None) -> None:
    await following.read(pod("a", "r"), pod("b", "r"))
    following.network.page = page
    following.clock.now += 1.26 * sidecar_status.READY_PERIOD_S
    assert await following.reader.read(KEY, [pod("a", "r"), pod("b", "r")])
    pages = following.reader.pages(KEY, [pod("a", "r"), pod("b", "r")])
    wanted = status.decode(page) if page else None
    assert [one.status for one in pages.values()] == [wanted, wanted]


@pytest.mark.parametrize(
    ("pod_ready", "page", "grammars"),
    [
        (False, PAGE, frozenset()),
        (True, None, frozenset()),
        (True, PAGE, frozenset({"g"})),  # of which the page says nothing
    ],
)
async def test_pod_that_is_not_well_is_looked_at_more_often(
    following: Following, *, pod_ready: bool, page: bytes | None, grammars: frozenset[str]
) -> None:
    following.network.page = page
    asked = pod("a", "r", ready=pod_ready)
    await following.read(asked, grammars=grammars)
    due_s = following.reader.due_s(KEY, [asked], grammars)
    assert 0 < due_s < 1.26 * sidecar_status.STARTING_PERIOD_S


async def test_pods_that_cannot_answer_are_not_asked(following: Following) -> None:
    pods = [
        pod("a", "r", ip=""),
        pod("b", "r", phase="Pending"),
        pod("c", "r", terminating=True),
        pod("d", "r", phase="Failed"),
    ]
    assert await following.read(*pods) == {}
    assert (following.network.reads, following.reader.due_s(KEY, pods)) == (0, math.inf)


@pytest.mark.parametrize("change", ["another pod", "its version", "the grammars"])
async def test_what_changed_while_pages_were_read_is_due_at_once(following: Following, change: str) -> None:
    """A pass began with what had changed meanwhile, and the change woke no other: 141 of 500 said so."""
    await following.read(pod("a", "r"))
    pods = [pod("a", "r", version="2" if change == "its version" else "1")]
    if change == "another pod":
        pods.append(pod("b", "r"))
    assert following.reader.due_s(KEY, pods, frozenset({"g"} if change == "the grammars" else ())) <= 0


async def test_pods_that_are_gone_are_forgotten(following: Following) -> None:
    await following.read(pod("a", "r"), pod("b", "r"))
    await following.read(pod("a", "r"))
    assert (
        following.reader.pages(KEY, [pod("b", "r")])["uid-b"].error == "its status page has not been read yet"
    )
    following.reader.forget(KEY)
    assert following.reader.due_s(KEY, [pod("a", "r")]) <= 0


def test_no_control_character_and_no_endless_number_of_a_page_gets_further() -> None:
    page = status.PodStatus(
        ready=False, message="a\x1b[2J\x9b\u202eb\nc\\u001bd\\\x07", versions={"x\x1b": "\x00"}
    )
    plain = status.decode(status.encode(page))
    assert (plain.message, plain.versions) == ("a[2Jb\nc\\u001bd\\", {"x": ""})
    for number in ("1e400", 400 * "9", str(1 << 63)):
        data = b'{"ready": true, "grammarWorkers": {"ready": %s, "restarts": 0}}' % number.encode()
        with pytest.raises(ValueError, match=r"ready|byte"):
            status.decode(data)


async def test_a_thousand_silent_pods_of_one_tenant_make_no_other_wait() -> None:
    async def fetch(address: str) -> bytes:
        await asyncio.sleep(page_fetch.TIMEOUT_S if address == "silent" else 0)
        return PAGE

    reader = SidecarReader(fetch, Clock())
    silent = [pod(f"s{number}", "r", ip="silent") for number in range(1000)]
    task = asyncio.create_task(reader.read(KEY, silent))
    await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await reader.read(Key("other", "m"), [dataclasses.replace(pod("a", "r"), namespace="other")])
    task.cancel()


# --- getting a page from whoever answers: bounded in time and bytes, and never followed elsewhere ---

HERE = "127.78.0.1"
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
