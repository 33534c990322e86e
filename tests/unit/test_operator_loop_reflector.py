"""The reflector and its store: the store is like the cluster, also after watches that broke off."""

import asyncio
import dataclasses
from typing import Any

import pytest

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import AccessForbidden, ObjectNotFound, ServerUnavailable, WatchExpired
from guided_operator.kube.queue import Key
from guided_operator.kube.store import Store, name_of
from guided_operator.watch.informers import Watches
from support.memory_api import MemoryApi
from support.watched import KEY, Watched

Object = dict[str, Any]


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
        del watched.api.objects[f"{kinds.SERVICE.path()}/a"]
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


async def test_list_comes_by_pages() -> None:
    watched = Watched()
    pages = [{"items": [watched.put(name)], "metadata": {"resourceVersion": "50"}} for name in "abc"]
    for number, page in enumerate(pages[:-1], 1):
        page["metadata"]["continue"] = str(number)
    asked: list[str] = []

    async def read(_: str, *, params: Any, **__: Any) -> Object:
        asked.append(params.get("continue", ""))
        return pages[int(asked[-1] or 0)]

    watched.api.read = read  # type: ignore[method-assign]
    async with watched.running():
        assert asked == ["", "1", "2"]
        assert set(watched.seen()) == {"a", "b", "c"}


async def test_what_was_written_is_known_before_the_watch_tells_and_rings_no_bell_then() -> None:
    watched = Watched()
    async with watched.running():
        watched.api.events.put_nowait({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "10"}}})
        await watched.until(1)
        item = watched.put("a", x="1")
        item["metadata"]["resourceVersion"] = "11"
        watched.reflector.take_written(item)
        assert watched.seen() == {"a": {"x": "1"}}
        watched.api.events.put_nowait({"type": "ADDED", "object": item})
        await watched.until(1)
        assert watched.rung == []


async def test_what_was_written_and_is_gone_by_now_stays_gone() -> None:
    watched = Watched()
    async with watched.running():
        item = watched.put("a", listed=False)
        item["metadata"]["resourceVersion"] = "11"
        gone = {**item, "metadata": {**item["metadata"], "resourceVersion": "12"}}
        for event in ({"type": "ADDED", "object": item}, {"type": "DELETED", "object": gone}):
            watched.api.events.put_nowait(event)
        await watched.until(1)
        watched.reflector.take_written(item)  # its answer was read after the watch had told all
        assert watched.seen() == {}


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


async def test_watch_that_ends_at_once_is_asked_for_less_and_less() -> None:
    watched = Watched()
    async with watched.running():
        for _ in range(6):
            watched.api.events.put_nowait(None)
        await watched.until(1)
        assert len(watched.slept) == 6
        assert watched.slept[5] > watched.slept[0] * 4


async def test_server_in_trouble_is_asked_less_and_less() -> None:
    watched = Watched()
    watched.api.faults = [ServerUnavailable("busy", status=429, retry_after_s=20.0)]
    watched.api.faults += [ServerUnavailable("down", status=503) for _ in range(6)]
    async with watched.running():
        assert watched.slept[0] >= 16.0, "as long as the server asked for, give or take"
        assert watched.slept[6] > watched.slept[1] * 4


@pytest.mark.parametrize("jitter", [0.8, 1.0, 1.2])
async def test_forbidden_kind_is_remembered_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, jitter: float
) -> None:
    """Also one that has never been seen: the server may have just started, as this process has."""
    monkeypatch.setattr("random.uniform", lambda *_: jitter)
    watched = Watched()
    watched.put("a")
    watched.api.faults = [AccessForbidden("you may not list configmaps", status=403) for _ in range(30)]
    begin_s = watched.now_s
    task = asyncio.create_task(watched.reflector.run())
    await watched.reflector.settled.wait()
    assert "may not list" in watched.reflector.forbidden
    assert watched.slept[-1] == 20, "until it is tried again"
    assert watched.now_s - begin_s == 30 + 20
    await watched.until(1)
    assert watched.reflector.forbidden == ""
    assert watched.seen() == {"a": {}}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_was_seen_is_forbidden_only_when_refusals_last() -> None:
    """An API server that has just started refuses everything for some seconds, half a minute at times."""
    watched = Watched()
    watched.put("a")
    async with watched.running():
        watched.rung.clear()
        for refusals, is_forbidden in ((3, False), (6, False), (30, True)):
            begin_s, lists = watched.now_s, watched.api.lists
            watched.api.faults = [AccessForbidden("not yet", status=403) for _ in range(refusals)]
            watched.api.events.put_nowait({"type": "ERROR", "object": {"code": 410}})
            while watched.api.faults:
                assert not watched.reflector.forbidden or watched.now_s - begin_s >= 60
                await asyncio.sleep(0)
            assert bool(watched.reflector.forbidden) == is_forbidden
            assert watched.seen() == {"a": {}}, "what was known stays"
            await watched.until(lists + 1)
            assert not watched.reflector.forbidden
    assert watched.rung == [KEY, KEY], "told once that it is forbidden, and once that it no longer is"


async def test_store_keeps_what_is_used_and_follows_a_changed_label() -> None:
    store, watched = Store(), Watched()
    item = watched.put("a", x="1")
    store.put(kinds.SERVICE, item)
    assert "managedFields" not in store.items(KEY, kinds.SERVICE)["a"]["metadata"]
    assert store.put(kinds.SERVICE, item) == set(), "the same version concerns nobody"
    moved = watched.put("a")
    moved["metadata"]["labels"] = {names.LABEL_NAME: "other"}
    assert store.put(kinds.SERVICE, moved) == {KEY, Key("ns", "other")}
    assert store.keys() == {Key("ns", "other")}
    store.retain(kinds.SERVICE, [])
    assert store.keys() == set()


def test_store_keeps_a_model_under_its_own_name() -> None:
    store, model = Store(), {"metadata": {"name": "m", "namespace": "ns", "resourceVersion": "1"}, "spec": {}}
    assert store.put(kinds.MODEL, model) == {KEY}
    found = store.model(KEY)
    assert found is not None
    assert (found["kind"], found["spec"]) == (names.KIND, {})
    assert store.drop(kinds.MODEL, model) == {KEY}
    assert store.model(KEY) is None


def test_list_of_a_namespace_says_nothing_of_others() -> None:
    store, watched = Store(), Watched()
    item = watched.put("a")
    other = {**item, "metadata": {**item["metadata"], "namespace": "other"}}
    for each in (item, other):
        store.put(kinds.SERVICE, each)
    assert store.retain(kinds.SERVICE, [name_of(other)], "other") == set()
    assert store.retain(kinds.SERVICE, [], "other") == {Key("other", "m")}
    assert store.keys() == {KEY}


async def test_each_namespace_is_watched_and_a_forbidden_one_is_blind_alone() -> None:
    api, store = MemoryApi(), Store()
    asked: list[str] = []

    async def read(path: str, **_: Any) -> Object:
        asked.append(path)
        if path == kinds.SERVICE.path("b"):
            raise AccessForbidden("not in b", status=403)
        return {"metadata": {"resourceVersion": "1"}, "items": []}

    api.read = read  # type: ignore[method-assign]
    watches = Watches(api, store, store, lambda _: None, ("a", "b"))
    task = asyncio.create_task(watches.run())
    await watches.synced()
    assert watches.is_synced()
    assert watches.blind("a") == {}
    assert watches.blind("b") == {"Service": "not in b"}
    assert {path.split("/namespaces/")[1].split("/")[0] for path in asked} == {"a", "b"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_api_that_is_not_installed_is_looked_for_until_it_is_there() -> None:
    watched = Watched(dataclasses.replace(kinds.SERVICE, optional=True))
    watched.store.put(kinds.CONFIG_MAP, watched.put("other", listed=False))
    watched.api.faults = [ObjectNotFound("no such kind", status=404)] * 3
    async with watched.running():
        assert watched.reflector.absent
        async with asyncio.timeout(5):
            while watched.reflector.absent:  # noqa: ASYNC110 - a fake has no bell
                await asyncio.sleep(0)
    assert watched.rung == [KEY, KEY], "told that it is missing, and that it no longer is"
    assert not watched.reflector.forbidden


async def test_change_of_what_nobody_uses_rings_no_bell() -> None:
    store, item = Store(), Watched().put("c", a="1")
    assert store.put(kinds.SERVICE, item) == {KEY}
    item["metadata"] |= {"resourceVersion": "8", "managedFields": []}
    assert store.put(kinds.SERVICE, item) == set()
    item["spec"] = {"a": "2"}
    assert store.put(kinds.SERVICE, item) == {KEY}
