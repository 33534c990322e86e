"""What is held of objects: next to nothing of others', hashes of texts, the newest revision whole."""

import asyncio
import json
import tracemalloc
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from guided_contract import names
from guided_operator.kube import kinds, transport
from guided_operator.kube.api_errors import AnswerTooLarge
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.kinds import Kind
from guided_operator.kube.queue import Key
from guided_operator.kube.reflector import PAGE_OBJECTS, Reflector
from guided_operator.kube.store import Store
from guided_operator.reconcile.observe import Observer
from guided_operator.watch.grammar_sources import GrammarSources
from guided_operator.watch.guided_models import Models
from guided_operator.watch.informers import Watches
from guided_operator.watch.sidecar_status import SidecarReader
from support.memory_api import MemoryApi

Object = dict[str, Any]
KEY = Key("ns", "m")
MIB = 1 << 20


def item(name: str, owner: str = names.KIND, **fields: Any) -> Object:
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "resourceVersion": "1",
        "labels": {names.LABEL_NAME: "m", names.LABEL_REVISION: name},
        "ownerReferences": [{"kind": owner, "uid": "u", "controller": True}],
    }
    return {"metadata": metadata, **fields}


def revision(number: int) -> Object:
    return item(f"r{number}", revision=number, data={"template": {"of": number}, "config": {}})


@pytest.mark.parametrize("owner", [names.KIND, "Another"])
@pytest.mark.parametrize("kind", [kinds.CONFIG_MAP, kinds.REVISION], ids=lambda kind: kind.name)
def test_a_tenants_large_objects_take_no_memory(kind: Kind, owner: str) -> None:
    store = Store()
    tracemalloc.start()
    try:
        for number in range(100):
            store.put(kind, item(str(number), owner, data={"x": MIB * "<"}, revision=number))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(store.items(KEY, kind)) == 100
    assert held < 3 * MIB


def test_of_what_is_not_a_models_its_name_is_known() -> None:
    store = Store()
    for kind in kinds.WATCHED:
        if kind is not kinds.POD:
            store.put(kind, item("other", "Another", spec={"x": 1}, data={"x": "y"}, status={}))
            kept = store.items(KEY, kind)["other"]
            assert set(kept) == {"apiVersion", "kind", "metadata"}
            assert set(kept["metadata"]) == {"name", "namespace", "uid"}


def test_the_newest_revision_alone_is_whole_and_a_new_list_is_no_news() -> None:
    store = Store()
    for number in (2, 3, 1):
        assert store.put(kinds.REVISION, revision(number)) == {KEY}
    for number in (1, 2, 3):
        assert not store.put(kinds.REVISION, revision(number))
    held = store.items(KEY, kinds.REVISION)
    assert {name: one.get("data") for name, one in held.items()} == {
        "r1": None,
        "r2": None,
        "r3": revision(3)["data"],
    }
    assert {name: one["revision"] for name, one in held.items()} == {"r1": 1, "r2": 2, "r3": 3}


async def test_an_older_revision_that_is_asked_for_is_read() -> None:
    api, store = MemoryApi(), Store()
    models = Models(api, store, lambda _key: None, [])
    sources = GrammarSources(api)
    watches = Watches(api, store, sources, lambda _key: None, [])

    async def fetch(_address: str) -> bytes:
        raise AssertionError("there are no pods")

    sidecars = SidecarReader(fetch, lambda: 0.0, lambda _key: None)
    metadata = {"name": "m", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1}
    spec = {
        "engine": {"image": "docker.io/vllm/vllm-openai:v0.32.0"},
        "model": {"uri": "hf://a/b"},
        "rollout": {"rollbackTo": 10 * "a"},
    }
    model = {"apiVersion": f"{names.API_GROUP}/{names.API_VERSION}", "kind": names.KIND}
    models.take(None, {**model, "metadata": metadata, "spec": spec})
    for number, name in enumerate((10 * "a", 10 * "b", 10 * "c")):
        whole = item(name, revision=number, data={"template": {"of": number}, "config": {}})
        api.objects[kinds.REVISION.path("ns", name)] = whole
        store.put(kinds.REVISION, whole)
    observed = await Observer(models, store, watches, sidecars, sources, api).observe(KEY)
    assert observed is not None
    seen = observed.children[kinds.REVISION.name]
    assert {name: "data" in one for name, one in seen.items()} == {
        10 * "a": True,
        10 * "b": False,
        10 * "c": True,
    }


class LargeList:
    """An API server with ConfigMaps that are as large as can be."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[int] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            await asyncio.sleep(60)
        limit, start = int(request.query["limit"]), int(request.query.get("continue", 0))
        self.asked.append(limit)
        end = min(start + limit, self.count)
        found = [item(str(number), data={"x": MIB * "x"}) for number in range(start, end)]
        more = {"continue": str(end)} if end < self.count else {}
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(
            b'{"metadata": %s, "items": [' % json.dumps({"resourceVersion": "5", **more}).encode()
        )
        for number, one in enumerate(found):
            await response.write((b"," if number else b"") + json.dumps(one).encode())
        await response.write(b"]}")
        return response


async def test_a_page_of_large_objects_is_asked_for_in_parts() -> None:
    large, store = LargeList(30), Store()
    app = web.Application()
    app.router.add_get("/{path:.*}", large.answer)
    async with TestServer(app) as server:
        configuration = client.Configuration(host=str(server.make_url("")).rstrip("/"))
        async with transport.opened(configuration, "test") as opened:
            api = ApiServer(opened)
            with pytest.raises(AnswerTooLarge):
                await api.read("/x", params={"limit": "5"}, most_bytes=MIB)
            large.asked.clear()
            reflector = Reflector(api, kinds.CONFIG_MAP, store, lambda _key: None)
            task = asyncio.create_task(reflector.run())
            async with asyncio.timeout(30):
                await reflector.settled.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert len(store.items(KEY, kinds.CONFIG_MAP)) == 30
    assert large.asked[:4] == [PAGE_OBJECTS, 25, 6, 1]
    assert set(large.asked[4:]) == {1}
    assert reflector.broken == 0
