"""Reading sidecars: on change and now and then, bounded, and never believed blindly."""

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Mapping

import pytest
from aiohttp import web

from guided_contract import status
from guided_operator.kube.key import Key
from guided_operator.kube.pod_view import PodView
from guided_operator.watch import page_fetch, sidecar_status
from guided_operator.watch.page_fetch import PageError
from guided_operator.watch.sidecar_status import Page, SidecarReader
from support.observed import pod

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
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
