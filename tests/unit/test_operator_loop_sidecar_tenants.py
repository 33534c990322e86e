"""Reading sidecars of tenants who are at their worst: large pages, no answer, pods that never stand still."""

import asyncio
import time
import tracemalloc

import pytest

from guided_contract import status
from guided_operator.kube.pod_view import PodView
from guided_operator.kube.queue import Key
from guided_operator.watch import sidecar_status
from guided_operator.watch.page_fetch import MAX_PAGE_BYTES, PageError
from guided_operator.watch.sidecar_status import SidecarReader
from support.observed import pod

KEY = Key("ns", "m")
PAGE = status.encode(status.PodStatus(ready=True))


async def large(address: str) -> bytes:
    """Answer with a page that is as large as it may be."""
    versions = {f"{address} {number}": "" for number in range(3000)}
    return status.encode(status.PodStatus(ready=True, versions=versions))[:MAX_PAGE_BYTES]


async def test_the_worst_pages_take_bounded_memory_and_of_their_own_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 1 << 20
    monkeypatch.setattr(sidecar_status, "MAX_NAMESPACE_BYTES", most)
    monkeypatch.setattr(sidecar_status, "MAX_BYTES", 2 * most + most // 2)
    reader = SidecarReader(large, time.monotonic, lambda _: None)
    tracemalloc.start()
    try:
        for number in range(4):
            key, pods = Key(f"ns{number}", "m"), [pod(str(one), "r", ip=str(one)) for one in range(30)]
            while (pages := reader.pages(key, pods)) is None:
                await reader.read_next()
            told = [page.error for page in pages.values()]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3.5 * most
    assert "too large together" in told[-1]
    for number in range(3):
        reader.forget(Key(f"ns{number}", "m"))
    honest = Key("honest", "m")
    while (pages := reader.pages(honest, [pod("a", "r")])) is None:
        await reader.read_next()
    assert [page.error for page in pages.values()] == [""]


async def test_silent_models_keep_nobody_waiting() -> None:
    """Not even those of many namespaces at once; only time that passes for them would end their reads."""
    answers = asyncio.Event()

    async def fetch(address: str) -> bytes:
        if address == "silent":
            await answers.wait()
            raise PageError("no answer")
        return PAGE

    rung = asyncio.Queue[Key]()
    reader = SidecarReader(fetch, time.monotonic, rung.put_nowait)
    reading = asyncio.create_task(reader.run())
    for number in range(16):
        pods = [pod(str(one), "r", ip="silent") for one in range(20)]
        assert reader.pages(Key(f"ns{number}", "m"), pods) is None
    await asyncio.sleep(0)
    honest = Key("honest", "m")
    assert reader.pages(honest, [pod("a", "r")]) is None
    async with asyncio.timeout(5):
        assert await rung.get() == honest
    pages = reader.pages(honest, [pod("a", "r")])
    assert pages is not None
    assert pages["uid-a"].status
    answers.set()
    async with asyncio.timeout(5):
        assert {(await rung.get()).namespace for _ in range(16)} == {f"ns{number}" for number in range(16)}
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_a_model_whose_reading_was_ended_is_read_by_the_next_reader() -> None:
    """Its passes wait for the page: a key that stayed with the reader that ended would keep them for ever."""
    asked, rung = asyncio.Event(), asyncio.Queue[Key]()
    answers = iter([asyncio.Event().wait(), asyncio.sleep(0)])

    async def fetch(_address: str) -> bytes:
        asked.set()
        await next(answers)
        return PAGE

    reader = SidecarReader(fetch, time.monotonic, rung.put_nowait)
    assert reader.pages(KEY, [pod("a", "r")]) is None
    first = asyncio.create_task(reader.run())
    await asked.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(reader.run())
    async with asyncio.timeout(5):
        assert await rung.get() == KEY
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


async def test_a_model_whose_pods_change_all_the_time_is_looked_at() -> None:
    """Faster than pages are read: each pass is put off once, and then decides by what is there."""
    version = 0

    async def fetch(_address: str) -> bytes:
        nonlocal version
        version += 1
        reader.pages(KEY, pods())  # a pass between the change and the answer
        return status.encode(status.PodStatus(ready=True, message=f"at {version}"))

    def pods() -> list[PodView]:
        return [pod("a", "r", version=str(version)), pod(f"b{version}", "r")]

    rung = list[Key]()
    reader = SidecarReader(fetch, time.monotonic, rung.append)
    for change in range(3):
        assert reader.pages(KEY, pods()) is None
        await reader.read_next()
        assert rung.pop() == KEY
        pages = reader.pages(KEY, pods())
        assert pages is not None, change
        assert pages["uid-a"].status is not None
        assert "not been read yet" in pages[f"uid-b{version}"].error
