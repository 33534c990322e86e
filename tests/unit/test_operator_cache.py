"""What is kept of watched objects, and which models a change wakes."""

from typing import Any

import pytest

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.key import Key
from guided_operator.watch.cache import Cache
from guided_operator.watch.informers import Informer, Informers
from support.memory_api import MemoryApi

Object = dict[str, Any]
KEY = Key("ns", "m")


def item(name: str, version: int, *, model: str = "m", **spec: Any) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "resourceVersion": str(version),
            "labels": {names.LABEL_NAME: model},
            "managedFields": [{}],
            "ownerReferences": [{"kind": names.KIND, "uid": "u", "controller": True}],
        },
        "spec": spec,
    }


class World:
    """A cache, and which models it has woken since it was asked last."""

    def __init__(self) -> None:
        self._woken: list[Key] = []
        self.cache = Cache(self._woken.append)

    def tell(self, event: str | None, one: Object, kind: kinds.Kind = kinds.SERVICE) -> list[Key]:
        self.cache.take(kind, event, one)
        return self.woken()

    def woken(self) -> list[Key]:
        woken = self._woken[:]
        self._woken.clear()
        return woken

    def seen(self, kind: kinds.Kind = kinds.SERVICE) -> dict[str, Any]:
        return {name: one["spec"] for name, one in self.cache.items(KEY, kind).items()}


def test_a_change_wakes_its_model_and_what_nobody_looks_at_does_not() -> None:
    world = World()
    assert world.tell(None, item("a", 1, x=1)) == [KEY]
    assert world.tell("MODIFIED", item("a", 2, x=2)) == [KEY]
    assert world.tell("MODIFIED", {**item("a", 3, x=2), "status": {"y": 1}}) == []
    assert world.tell("DELETED", item("a", 4)) == [KEY]
    assert world.seen() == {}


def test_a_relabelled_object_is_the_other_models_and_wakes_both() -> None:
    world = World()
    world.tell(None, item("a", 1))
    assert world.tell("MODIFIED", item("a", 2, model="other")) == [KEY, Key("ns", "other")]
    assert world.seen() == {}


def test_an_object_that_cannot_be_read_is_left_out_and_told_of() -> None:
    world = World()
    for one in (item("good", 1), item("bad", 2)):
        world.tell(None, one)
    broken = item("bad", 3)
    broken["metadata"]["ownerReferences"] = [1]
    assert world.tell("MODIFIED", broken) == [KEY]
    assert set(world.seen()) == {"good"}
    assert world.cache.unreadable()["Service"] == 1
    assert world.tell("MODIFIED", item("bad", 4)) == [KEY]
    assert not any(world.cache.unreadable().values())


def test_what_a_write_returned_is_news_to_nobody_and_an_older_event_none() -> None:
    world = World()
    world.tell(None, item("a", 1, x=1))
    world.cache.take_written(kinds.SERVICE, item("a", 5, x=5))
    assert world.tell("MODIFIED", item("a", 4, x=4)) == []
    assert world.seen() == {"a": {"x": 5}}
    assert world.tell("MODIFIED", item("a", 5, x=5)) == []
    world.tell("DELETED", item("a", 9))
    world.cache.take_written(kinds.SERVICE, item("a", 8))  # the answer was slower than the watch
    assert world.seen() == {}


def test_of_a_model_the_status_wakes_nobody_and_all_else_does_who_ever_told_of_it() -> None:
    world = World()
    world.tell(None, item("m", 1, replicas=1), kinds.MODEL)
    assert world.tell("MODIFIED", {**item("m", 2, replicas=1), "status": {}}, kinds.MODEL) == []
    world.cache.take_written(kinds.MODEL, item("m", 3, replicas=2))
    assert world.woken() == [KEY]
    assert world.cache.models() == {KEY}


class TestInformer:
    """A kind's watch, by what is answered to it."""

    def informer(self, kind: kinds.Kind = kinds.SERVICE) -> Informer:
        self.now_s = 0.0
        self.cache = Cache(lambda _key: None)
        return Informer(kind, "", self.cache, lambda: self.now_s)

    @pytest.mark.parametrize(("kind", "is_settled"), [(kinds.SERVICE, True), (kinds.MODEL, False)])
    def test_a_refusal_is_believed_once_it_has_lasted(self, kind: kinds.Kind, *, is_settled: bool) -> None:
        """Without the models themselves there is nothing to act on: the replica is not ready."""
        informer = self.informer(kind)
        for _ in range(4):
            informer.refused("no right")
            assert not informer.forbidden
            self.now_s += 9.0
        informer.refused("no right")
        assert informer.forbidden == "no right"
        assert informer.is_settled == is_settled
        informer.answered(is_well=True)
        assert not informer.forbidden


async def test_an_api_that_is_not_installed_is_absent_until_it_is() -> None:
    api = MemoryApi()
    informers = Informers(api, Cache(lambda _key: None), [])
    await informers._discover()
    assert informers.absent() == {"LeaderWorkerSet", "PodMonitor"}
    api.objects[kinds.WORKER_SET.group_path] = {"resources": [{"name": "leaderworkersets"}]}
    await informers._discover()
    assert informers.absent() == {"PodMonitor"}
