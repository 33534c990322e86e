"""The reflector and its store: the store is like the cluster, also after watches that broke off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from guided_contract import names
from guided_operator import kinds
from guided_operator.apiserver import AccessForbidden, ServerUnavailable, WatchExpired
from guided_operator.queue import Key
from guided_operator.reflector import Reflector
from guided_operator.store import Store
from support.memory_api import MemoryApi

Object = dict[str, Any]
KEY = Key("ns", "m")


class Watched:
    """A reflector of ConfigMaps that runs; waiting takes no time."""

    def __init__(self) -> None:
        self.api, self.store = MemoryApi(), Store()
        self.rung: list[Key] = []
        self.slept: list[float] = []
        self.reflector = Reflector(
            self.api, kinds.CONFIG_MAP, self.store, self.rung.append, sleep=self._sleep
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def put(self, name: str, *, listed: bool = True, **data: str) -> Object:
        item = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": name,
                "resourceVersion": "7",
                "labels": {names.LABEL_NAME: "m"},
                "managedFields": [{}],
            },
            "data": data,
        }
        if listed:
            self.api.objects[f"{kinds.CONFIG_MAP.path()}/{name}"] = item
        return item

    def seen(self) -> dict[str, Any]:
        return {name: item["data"] for name, item in self.store.items(KEY, kinds.CONFIG_MAP).items()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reflector.run())
        try:
            async with asyncio.timeout(5):
                await self.reflector.settled.wait()
                yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, lists: int) -> None:
        """Wait until it has listed so often, and has taken in what it was sent."""
        while self.api.lists < lists or not self.api.events.empty():  # noqa: ASYNC110 - a fake has no bell
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)


async def test_events_change_the_store_and_ring() -> None:
    watched = Watched()
    watched.put("a", x="1")
    async with watched.running():
        assert watched.seen() == {"a": {"x": "1"}}
        watched.rung.clear()
        watched.api.events.put_nowait({"type": "MODIFIED", "object": watched.put("a", x="2")})
        watched.api.events.put_nowait({"type": "ADDED", "object": watched.put("b")})
        await watched.until(1)
        assert watched.seen() == {"a": {"x": "2"}, "b": {}}
        watched.api.events.put_nowait({"type": "DELETED", "object": watched.put("a", listed=False)})
        await watched.until(1)
        assert watched.seen() == {"b": {}}
        assert watched.rung == [KEY, KEY, KEY]


async def test_deletion_during_a_lost_watch_is_noticed() -> None:
    watched = Watched()
    watched.put("a")
    watched.put("b")
    async with watched.running():
        del watched.api.objects[f"{kinds.CONFIG_MAP.path()}/a"]
        watched.rung.clear()
        watched.api.events.put_nowait(WatchExpired("too old", status=410))
        await watched.until(2)
        assert watched.seen() == {"b": {}}
        assert KEY in watched.rung


async def test_expiry_inside_the_stream_lists_anew() -> None:
    watched = Watched()
    async with watched.running():
        watched.put("a")
        gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
        watched.api.events.put_nowait(gone)
        await watched.until(2)
        assert watched.seen() == {"a": {}}


async def test_broken_watch_goes_on_from_where_it_was() -> None:
    watched = Watched()
    async with watched.running():
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}
        watched.api.events.put_nowait(bookmark)
        watched.api.events.put_nowait(ServerUnavailable("no answer"))
        await watched.until(1)
        watched.api.events.put_nowait(None)  # the server ends the watch, as it does now and then
        await watched.until(1)
        assert watched.api.lists == 1
        assert watched.api.watched_from[1:] == ["99", "99"]


async def test_server_in_trouble_is_asked_less_and_less() -> None:
    watched = Watched()
    watched.api.faults = [ServerUnavailable("busy", status=429, retry_after_s=20.0)]
    watched.api.faults += [ServerUnavailable("down", status=503) for _ in range(6)]
    async with watched.running():
        assert watched.slept[0] >= 16.0, "as long as the server asked for, give or take"
        assert watched.slept[6] > watched.slept[1] * 4


async def test_forbidden_kind_is_remembered_and_tried_again() -> None:
    watched = Watched()
    watched.put("a")
    watched.api.faults = [AccessForbidden("you may not list configmaps", status=403)]
    task = asyncio.create_task(watched.reflector.run())
    await watched.reflector.settled.wait()
    assert "may not list" in watched.reflector.forbidden
    await watched.until(1)
    assert watched.reflector.forbidden == ""
    assert watched.seen() == {"a": {}}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_store_keeps_what_is_used_and_follows_a_changed_label() -> None:
    store, watched = Store(), Watched()
    item = watched.put("a", x="1")
    store.put(kinds.CONFIG_MAP, item)
    assert "managedFields" not in store.items(KEY, kinds.CONFIG_MAP)["a"]["metadata"]
    item["metadata"]["labels"] = {names.LABEL_NAME: "other"}
    assert store.put(kinds.CONFIG_MAP, item) == {KEY, Key("ns", "other")}
    assert store.keys() == {Key("ns", "other")}
    store.replace(kinds.CONFIG_MAP, [])
    assert store.keys() == set()
