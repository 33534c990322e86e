"""Writing children: nothing when nothing differs, never what is not ours, never a loop."""

import copy
import dataclasses
import json
from typing import Any

import pytest

from guided_operator.kube import kinds
from guided_operator.kube.api_errors import (
    AccessForbidden,
    ApiError,
    ObjectInvalid,
    ObjectNotFound,
    ServerUnavailable,
    WriteConflict,
    error_of,
)
from guided_operator.kube.apiserver import as_yaml
from guided_operator.reconcile.apply import Applier, Outcome
from guided_operator.reconcile.observe import Observed
from support.memory_api import MemoryApi
from support.observed import model, planned, seen

Object = dict[str, Any]


class World:
    """A fake API server, and an operator whose cache is up to date unless said otherwise."""

    def __init__(self) -> None:
        self.api, self.now_s = MemoryApi(), 0.0
        self.applier = Applier(self.api, lambda *_: None, lambda: self.now_s)

    def observed(self) -> Observed:
        return seen(children=self.api.children())

    async def settle(self, observed: Observed | None = None) -> Outcome:
        current = observed or self.observed()
        return await self.applier.apply(current, planned(current))

    def object(self, kind: kinds.Kind, name: str = "m") -> Object:
        return self.api.objects[kind.path("ns", name)]


async def test_cache_that_lags_makes_no_writes_either() -> None:
    world = World()
    await world.settle()
    world.api.writes.clear()
    outcome = await world.settle(seen())  # as if nothing had been created
    assert outcome.faults == ()
    assert world.api.writes == []


async def settle_with(world: World, **spec: Any) -> list[tuple[str, str]]:
    """Return what is written when the model's spec becomes this."""
    world.api.writes.clear()
    await world.settle(dataclasses.replace(world.observed(), model=model(**spec)))
    return world.api.writes


async def test_another_number_of_replicas_is_one_write() -> None:
    world = World()
    await settle_with(world, replicas=1)
    for replicas in (2, 0):
        assert await settle_with(world, replicas=replicas) == [("apply", kinds.DEPLOYMENT.path("ns", "m"))]
        assert world.object(kinds.DEPLOYMENT)["spec"]["replicas"] == replicas
        assert await settle_with(world, replicas=replicas) == []


async def test_object_made_anew_since_it_was_cached_is_not_written() -> None:
    world = World()
    await settle_with(world, replicas=1)
    before = dataclasses.replace(world.observed(), model=model(replicas=2))
    world.object(kinds.DEPLOYMENT)["metadata"]["uid"] = "another"
    with pytest.raises(WriteConflict):  # the watch tells of it in a moment: nothing is said of it
        await world.settle(before)
    assert world.object(kinds.DEPLOYMENT)["spec"]["replicas"] == 1


async def test_foreign_object_is_left_untouched_and_no_pods_are_made_with_it() -> None:
    world = World()
    path = kinds.SERVICE.path("ns", "m")
    foreign = {"kind": "Service", "metadata": {"name": "m", "namespace": "ns", "uid": "u"}, "spec": {}}
    world.api.objects[path] = foreign
    outcome = await world.settle(seen())
    assert [fault.reason for fault in outcome.faults] == ["NameConflict"]
    assert world.api.objects[path] == foreign
    assert kinds.DEPLOYMENT.path("ns", "m") not in world.api.objects, "nothing that would use it"
    assert kinds.DISRUPTION_BUDGET.path("ns", "m") in world.api.objects, "what has nothing to do with it"


async def test_object_that_somebody_keeps_changing_back_is_left_alone() -> None:
    world = World()
    await world.settle()

    class Webhook(MemoryApi):
        """Sets the type of every Service, whatever was asked for."""

        def _store(self, path: str, item: Object) -> Object:
            if item["kind"] == "Service":
                item = {**item, "spec": {**item["spec"], "selector": {"app": "webhook"}}}
            return super()._store(path, item)

    stubborn = Webhook()
    stubborn.objects = world.api.objects
    world.api, world.applier = stubborn, Applier(stubborn, lambda *_: None)
    world.object(kinds.SERVICE)["spec"]["selector"] = {"app": "webhook"}
    for _ in range(4):
        await world.settle()
    assert [kind for kind, _ in world.api.writes] == ["apply"]
    assert world.applier.unsettled == 1


async def test_child_that_is_being_deleted_is_waited_for() -> None:
    world = World()
    await world.settle()
    service = world.object(kinds.SERVICE)
    service["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    service["spec"]["selector"] = {}
    world.api.writes.clear()
    await world.settle()
    assert world.api.writes == []


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (401, "Unauthorized", AccessForbidden),
        (403, "exceeded quota: no-budgets", AccessForbidden),
        (404, 'services "m" not found', ObjectNotFound),
        (409, "the object has been modified", WriteConflict),
        (413, "Request entity too large", ObjectInvalid),
        (422, "metadata.uid: Invalid value: field is immutable", WriteConflict),
        (422, "spec.ports: Required value", ObjectInvalid),
        (429, "try again", ServerUnavailable),
        # Each try of it made other models' workers wait, as in an outage, and status said nothing.
        (500, "etcdserver: request is too large", ObjectInvalid),
        (500, "failed calling webhook", ServerUnavailable),
        (503, "no endpoints available", ServerUnavailable),
    ],
)
def test_an_answer_is_an_error_by_what_can_be_done_about_it(
    status: int, message: str, error: type[ApiError]
) -> None:
    found = error_of(status, json.dumps({"message": message}).encode())
    assert type(found) is error
    assert str(found) == message


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (AccessForbidden('User "operator" cannot create resource "services"', status=403), "Forbidden"),
        (ServerUnavailable("failed calling webhook", status=500), "ApplyRefused"),
        (WriteConflict("a webhook's, or another's write", status=409), "ApplyRefused"),
    ],
)
async def test_what_is_refused_for_a_moment_is_nobodys_fault(refusal: ApiError, reason: str) -> None:
    """An API server that has just started refuses some requests: no condition, no event says so.

    A webhook that cannot be called is told after that, for else the status is never written again.
    """
    world = World()
    for _ in range(2):
        world.api.faults = [refusal]
        with pytest.raises(type(refusal)):
            await world.settle()
        assert kinds.SERVICE.path("ns", "m") in world.api.objects, "no other child waits"
        assert kinds.DEPLOYMENT.path("ns", "m") not in world.api.objects, "pods wait for what they need"
        world.now_s += 20
    world.api.faults = [refusal]
    [fault] = (await world.settle()).faults
    assert fault.reason == reason, "it has lasted"
    assert (await world.settle()).faults == ()
    world.api.writes.clear()
    world.applier = Applier(world.api, lambda *_: None, lambda: world.now_s)
    world.object(kinds.SERVICE)["spec"]["selector"] = {}
    world.api.faults = [refusal]
    with pytest.raises(type(refusal)):
        await world.settle()


@pytest.mark.parametrize(("kind", "leaves_pods_alone"), [(kinds.SERVICE, False), (kinds.REVISION, True)])
async def test_unseen_kind_is_neither_created_nor_repaired(
    kind: kinds.Kind, *, leaves_pods_alone: bool
) -> None:
    world = World()
    assert (await world.settle(dataclasses.replace(seen(), blind={kind.name: "no right"}))).faults == ()
    assert kind.name not in world.api.children()
    assert (kinds.DEPLOYMENT.path("ns", "m") not in world.api.objects) == leaves_pods_alone


async def test_pruning_spares_what_is_not_ours() -> None:
    world = World()
    await world.settle()
    observed = world.observed()
    plan = planned(observed)
    name = f"m-{plan.revision}"
    surplus = dataclasses.replace(plan, children=(), surplus=((kinds.CONFIG_MAP, name),))
    ours = world.object(kinds.CONFIG_MAP, name)
    theirs = copy.deepcopy(ours)
    theirs["metadata"]["ownerReferences"][0]["uid"] = "another"
    for stored, is_kept in ((theirs, True), (ours, False)):
        path = kinds.CONFIG_MAP.path("ns", name)
        world.api.objects[path] = stored
        world.applier.forget(observed.key)
        assert (await world.applier.apply(observed, surplus)).faults == ()
        assert (path in world.api.objects) == is_kept


def test_yaml_has_no_raw_line_breaks_or_control_characters() -> None:
    text = as_yaml({"a": "x\u2028y\x85z\x7f\n😀é"})
    assert text == '{"a":"x\\u2028y\\u0085z\\u007f\\n😀é"}'
