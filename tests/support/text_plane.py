"""A small API server of texts that no client would write, and what watches it: a reflector, or kopf."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from guided_contract import names
from guided_operator.kube import transport
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.kinds import Kind
from guided_operator.kube.reflector import Reflector
from guided_operator.kube.store import Store
from guided_operator.watch import handlers
from guided_operator.watch.guided_models import Models

Object = dict[str, Any]
_MODELS = f"{names.API_GROUP}/{names.API_VERSION}"
_CRDS = "apiextensions.k8s.io/v1"


def _group(group_version: str) -> Object:
    group, version = group_version.split("/")
    served = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


def _resources(plural: str, kind: str) -> Object:
    verbs = ["get", "list", "watch", "patch"]
    one = {"name": plural, "singularName": "", "kind": kind, "namespaced": kind == names.KIND, "verbs": verbs}
    return {"resources": [one]}


# What kopf waits for before it watches anything.
_DISCOVERY = {
    "/api": {"versions": ["v1"]},
    "/api/v1": _resources("namespaces", "Namespace"),
    "/apis": {"groups": [_group(_CRDS), _group(_MODELS)]},
    f"/apis/{_CRDS}": _resources("customresourcedefinitions", "CustomResourceDefinition"),
    f"/apis/{_MODELS}": _resources(names.PLURAL, names.KIND),
}


def text_of(item: Object, **replaced: str) -> str:
    """Return an object as JSON in which the text `@name` is replaced by JSON."""
    text = json.dumps(item)
    for name, value in replaced.items():
        text = text.replace(f'"@{name}"', value)
    return text


class Plane:
    """A small API server, of texts: it lists `listed` by pages, and a watch tells of `events`."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self.lists = 0
        self.written: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            self.written.append(f"{request.method} {request.path}")
            return web.json_response({}, status=403)
        if request.path in _DISCOVERY:
            return web.json_response(_DISCOVERY[request.path])
        if "watch" in request.query:
            return await self._tell(request)
        if "limit" not in request.query:
            return web.Response(text=self.listed[0], content_type="application/json")
        return self._list(request.query)

    def _list(self, query: Any) -> web.Response:
        self.lists += 1
        start = int(query.get("continue", 0))
        end = start + int(query["limit"])
        more = {"continue": str(end)} if end < len(self.listed) else {}
        page = {"kind": f"{names.KIND}List", "metadata": {"resourceVersion": "5", **more}, "items": "@items"}
        text = text_of(page, items=f"[{','.join(self.listed[start:end])}]")
        return web.Response(text=text, content_type="application/json")

    async def _tell(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write((await self.events.get()).encode() + b"\n")

    def tell(self, event: str, text: str) -> None:
        self.events.put_nowait(text_of({"type": event, "object": "@object"}, object=text))

    @asynccontextmanager
    async def served(self) -> AsyncIterator[ApiServer]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        async with TestServer(app) as server:
            self.url = str(server.make_url("")).rstrip("/")
            async with transport.opened(client.Configuration(host=self.url), "test") as opened:
                yield ApiServer(opened)


@asynccontextmanager
async def reflected(plane: Plane, kind: Kind) -> AsyncIterator[tuple[Reflector, Store]]:
    store = Store()
    async with plane.served() as api:
        reflector = Reflector(api, kind, store, lambda _key: None)
        task = asyncio.create_task(reflector.run())
        try:
            async with asyncio.timeout(20):
                await reflector.settled.wait()
            yield reflector, store
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def write(folder: Path, document: Object) -> str:
    path = folder / "written.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


@asynccontextmanager
async def watched(plane: Plane, folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """Have kopf watch."""
    store = Store()
    async with plane.served() as api:
        named = {"cluster": "c", "user": "u"}
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": named}],
            "clusters": [{"name": "c", "cluster": {"server": plane.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        patch.setenv("KUBECONFIG", write(folder, config))
        task = asyncio.create_task(handlers.watch(api, [], Models(api, store, lambda _key: None, [])))
        try:
            yield store
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
