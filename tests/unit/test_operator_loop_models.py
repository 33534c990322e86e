"""GuidedModels as kopf tells of them: what it does not say is found out, and the newest word counts."""

import asyncio
from typing import Any

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.queue import Key
from guided_operator.kube.store import Store
from guided_operator.watch.guided_models import Models
from support.memory_api import MemoryApi

Object = dict[str, Any]
KEY = Key("ns", "m")


class Kept:
    """A store of models, and the API server's."""

    def __init__(self) -> None:
        self.api, self.store, self.rung = MemoryApi(), Store(), list[Key]()
        self.models = Models(self.api, self.store, self.rung.append, [])

    def replicas(self) -> int | None:
        model = self.store.model(KEY)
        return None if model is None else model["spec"]["replicas"]

    def serve(self, item: Object) -> None:
        self.api.objects[kinds.model_path("ns", "m")] = item


def model(version: int, replicas: int = 1) -> Object:
    metadata = {"name": "m", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"replicas": replicas}}


def child() -> Object:
    metadata = {"name": "c", "namespace": "ns", "uid": "c", "labels": {names.LABEL_NAME: "m"}}
    return {"metadata": metadata, "data": {}}


def test_events_change_the_store_and_ring() -> None:
    kept = Kept()
    for event, item, replicas in (
        (None, model(1), 1),
        ("MODIFIED", model(2, 2), 2),
        ("DELETED", model(3, 2), None),
        ("ADDED", model(4, 4), 4),
    ):
        kept.rung.clear()
        kept.models.take(event, item)
        assert (kept.replicas(), kept.rung) == (replicas, [KEY])


def test_newer_word_counts_also_if_it_is_our_own() -> None:
    kept = Kept()
    kept.models.take(None, model(5))
    kept.models.take_written(model(7, 7))
    assert kept.replicas() == 7
    kept.rung.clear()
    kept.models.take("MODIFIED", model(6, 6))
    kept.models.take("MODIFIED", model(7, 7))
    assert (kept.replicas(), kept.rung) == (7, [])


def test_write_that_returns_after_the_deletion_brings_nothing_back() -> None:
    kept = Kept()
    kept.models.take(None, model(5))
    kept.models.take("DELETED", model(8))
    kept.models.take_written(model(7, 7))
    assert kept.replicas() is None


async def test_model_that_lost_a_child_is_asked_for_once() -> None:
    kept = Kept()
    kept.models.take(None, model(5))
    kept.serve(model(9, 9))
    await kept.models.confirm(KEY)
    assert kept.replicas() == 1, "asked without a reason"
    kept.store.put(kinds.CONFIG_MAP, child())
    kept.store.drop(kinds.CONFIG_MAP, child())
    await kept.models.confirm(KEY)
    assert kept.replicas() == 9
    kept.serve(model(11, 11))
    await kept.models.confirm(KEY)
    assert kept.replicas() == 9, "asked twice"


async def test_model_that_vanished_unannounced_with_its_children_is_forgotten() -> None:
    kept = Kept()
    kept.models.take(None, model(5))
    kept.store.put(kinds.CONFIG_MAP, child())
    kept.store.drop(kinds.CONFIG_MAP, child())
    await kept.models.confirm(KEY)
    assert kept.replicas() is None


async def test_look_forgets_what_is_gone_and_nothing_newer() -> None:
    kept = Kept()
    kept.models.take(None, model(1))
    kept.models.take(None, {**model(10**9), "metadata": model(10**9)["metadata"] | {"name": "new"}})
    looking = asyncio.create_task(kept.models.run())
    kept.models.look_soon()
    async with asyncio.timeout(5):
        while kept.replicas() is not None:  # noqa: ASYNC110 - a fake has no bell
            await asyncio.sleep(0)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    assert kept.store.model(Key("ns", "new"))


def test_a_status_that_we_wrote_rings_no_bell_and_what_came_with_it_does() -> None:
    kept = Kept()
    kept.models.take(None, model(5))
    kept.rung.clear()
    kept.models.take_written({**model(7), "status": {"message": "refused: id 1"}})
    assert not kept.rung
    kept.models.take("MODIFIED", {**model(7), "status": {"message": "refused: id 1"}})
    assert not kept.rung, "the watch's word of it"
    kept.models.take_written({**model(9, 2), "status": {"message": "refused: id 2"}})
    assert kept.rung == [KEY], "somebody changed the spec before the write, and the watch's word is older"
