"""A small API server of texts that no client would write, and kopf that watches it as in the operator."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from guided_operator.kube import kinds, transport
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.key import Key
from guided_operator.kube.kinds import Kind
from guided_operator.watch import kopf_setup
from guided_operator.watch.cache import Cache
from guided_operator.watch.informers import WATCHED, Informers

Object = dict[str, Any]
_CRDS = "apiextensions.k8s.io/v1"


def _discovery() -> dict[str, Object]:
    """Return what kopf waits for before it watches anything."""
    served = [
        ("v1", "namespaces", "Namespace"),
        (_CRDS, "customresourcedefinitions", "CustomResourceDefinition"),
    ]
    served += [(kind.api_version, kind.plural, kind.name) for kind in WATCHED]
    found: dict[str, Object] = {"/api": {"versions": ["v1"]}, "/apis": {"groups": []}}
    for each, plural, kind in served:
        path = f"/{'apis' if '/' in each else 'api'}/{each}"
        if path not in found and "/" in each:
            group, version = each.split("/")
            one = {"groupVersion": each, "version": version}
            found["/apis"]["groups"].append({"name": group, "versions": [one], "preferredVersion": one})
        is_ours = kind not in {"Namespace", "CustomResourceDefinition"}
        resource = {"name": plural, "singularName": "", "kind": kind, "namespaced": is_ours, "verbs": _VERBS}
        found.setdefault(path, {"resources": []})["resources"].append(resource)
    return found


_VERBS = ["get", "list", "watch", "patch"]
_DISCOVERY = _discovery()


def text_of(item: Object, **replaced: str) -> str:
    """Return an object as JSON in which the text `@name` is replaced by JSON."""
    text = json.dumps(item)
    for name, value in replaced.items():
        text = text.replace(f'"@{name}"', value)
    return text


class Plane:
    """A small API server, of texts: of one kind it lists `listed` by pages, and a watch tells of `events`.

    `answers` come first, each once: a status and a text for the next request to list or watch that kind.
    """

    def __init__(self, kind: Kind = kinds.MODEL) -> None:
        self.kind = kind
        self.listed: list[str] = []
        self.answers: list[tuple[int, str]] = []
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self.lists = 0
        self.written: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            self.written.append(f"{request.method} {request.path}")
            return web.json_response({}, status=403)
        if request.path in _DISCOVERY:
            return web.json_response(_DISCOVERY[request.path])
        is_ours = request.path == self.kind.path()
        if is_ours and self.answers:
            status, text = self.answers.pop(0)
            kind = "application/json" if text.startswith("{") else "text/html"
            return web.Response(status=status, text=text, content_type=kind)
        if "watch" in request.query:
            return await self._tell(request, self.events if is_ours else asyncio.Queue())
        return self._list(request.query, self.listed if is_ours else [])

    def _list(self, query: Any, listed: list[str]) -> web.Response:
        self.lists += bool(listed)
        start = int(query.get("continue", 0))
        end = start + int(query["limit"])
        more = {"continue": str(end)} if end < len(listed) else {}
        page = {"kind": "List", "metadata": {"resourceVersion": "5", **more}, "items": "@items"}
        text = text_of(page, items=f"[{','.join(listed[start:end])}]")
        return web.Response(text=text, content_type="application/json")

    async def _tell(self, request: web.Request, events: "asyncio.Queue[str]") -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write((await events.get()).encode() + b"\n")

    def tell(self, event: str, text: str) -> None:
        self.events.put_nowait(text_of({"type": event, "object": "@object"}, object=text))

    @asynccontextmanager
    async def served(self) -> AsyncIterator[ApiServer]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        async with TestServer(app) as server:
            url = str(server.make_url("")).rstrip("/")
            async with transport.opened(client.Configuration(host=url), "test") as opened:
                yield ApiServer(opened)


def write(folder: Path, document: Object) -> str:
    path = folder / "written.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


class Seen:
    """What an operator has seen of a plane, and of which models something has changed."""

    def __init__(self, api: ApiServer) -> None:
        self.woken = list[Key]()
        self.cache = Cache(self.woken.append)
        self.informers = Informers(api, self.cache, [])


@asynccontextmanager
async def watched(plane: Plane) -> AsyncIterator[Seen]:
    """Have kopf watch."""
    async with plane.served() as api:
        seen = Seen(api)
        task = asyncio.create_task(kopf_setup.watch(api, seen.informers.by_path, kopf_setup.Events(), []))
        try:
            yield seen
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
