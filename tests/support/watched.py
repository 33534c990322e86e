"""A reflector that runs over an API server in memory, and whose waiting takes no time."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.queue import Key
from guided_operator.kube.reflector import Reflector
from guided_operator.kube.store import Store
from support.memory_api import MemoryApi
from support.played import settled

Object = dict[str, Any]
KEY = Key("ns", "m")


class Watched:
    """A reflector of Services that runs; waiting takes no time."""

    def __init__(self, kind: kinds.Kind = kinds.SERVICE) -> None:
        self.api, self.store = MemoryApi(), Store()
        self.rung: list[Key] = []
        self._versions = itertools.count(7)
        self.slept: list[float] = []
        self.now_s = 0.0
        self.reflector = Reflector(
            self.api, kind, self.store, self.rung.append, clock=lambda: self.now_s, sleep=self._sleep
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)

    def put(self, name: str, *, listed: bool = True, **data: str) -> Object:
        item = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": name,
                "resourceVersion": str(next(self._versions)),
                "labels": {names.LABEL_NAME: "m"},
                "managedFields": [{}],
                "ownerReferences": [{"kind": names.KIND, "uid": "u", "controller": True}],
            },
            "spec": data,
        }
        if listed:
            self.api.objects[f"{kinds.SERVICE.path()}/{name}"] = item
        return item

    def seen(self) -> dict[str, Any]:
        return {name: item["spec"] for name, item in self.store.items(KEY, kinds.SERVICE).items()}

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
        await settled()
