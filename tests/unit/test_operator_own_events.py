"""What the operator may not see is one event of its own, and none of the models."""

import asyncio
import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any

from guided_operator.kube import kinds
from guided_operator.kube.api_errors import AccessForbidden, ServerUnavailable
from guided_operator.kube.queue import Key
from guided_operator.kube.store import Store
from guided_operator.own_events import LOOK_S, OwnEvents
from guided_operator.reconcile.apply import Fault, Outcome
from guided_operator.reconcile.report import report
from guided_operator.watch.grammar_sources import GrammarSources
from guided_operator.watch.informers import Watches
from support.memory_api import MemoryApi
from support.observed import pod, revision_of, serving

Object = dict[str, Any]
NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
WHERE = ("guidedmodel-system", "guidedmodel-operator")
LEASE = kinds.api_path("coordination.k8s.io/v1", "leases", *WHERE)
PODS = kinds.POD.path()
MODELS = 20


class Server(MemoryApi):
    """Has the operator's Lease, and refuses what is in `forbidden`."""

    def __init__(self, *forbidden: str) -> None:
        super().__init__()
        self.forbidden = {*forbidden}
        metadata = {"namespace": WHERE[0], "name": WHERE[1], "uid": "uid-of-the-lease"}
        self.objects[LEASE] = {"metadata": metadata}

    async def read(self, path: str, **more: Any) -> Object:
        if path in self.forbidden:
            raise AccessForbidden(f"cannot list {path}", status=403)
        return await super().read(path, **more)

    def posted(self) -> list[Object]:
        return [item for item in self.objects.values() if item.get("kind") == "Event"]


def own_events(api: MemoryApi, unseen: Mapping[str, str]) -> OwnEvents:
    return OwnEvents(api, *WHERE, lambda: unseen, lambda: NOW)


async def test_a_kind_that_is_forbidden_is_one_event_on_the_lease() -> None:
    api = Server(kinds.CONFIG_MAP.path())  # which two watches look at: ours, and others'
    watches = Watches(api, Store(), GrammarSources(api), lambda _: None, ())
    running = asyncio.create_task(watches.run())
    await watches.synced()
    assert len(watches.blind("ns")) == 2
    await OwnEvents(api, *WHERE, watches.unseen, lambda: NOW).look()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    [event] = api.posted()
    assert event["involvedObject"] == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "namespace": WHERE[0],
        "name": WHERE[1],
        "uid": "uid-of-the-lease",
    }
    assert (event["type"], event["reason"], event["metadata"]["namespace"]) == (
        "Warning",
        "Forbidden",
        WHERE[0],
    )
    assert "cannot list /api/v1/configmaps" in event["message"]


async def test_each_is_told_once_also_by_the_next_leader_and_again_only_when_it_is_news() -> None:
    api, unseen = Server(), {PODS: "no right"}
    own = own_events(api, unseen)
    for _ in range(3):
        await own.look()
    await own_events(api, unseen).look()
    assert len(api.posted()) == 1
    unseen[kinds.SERVICE.path("team-a")] = "no right in team-a"
    await own.look()
    assert len(api.posted()) == 2
    unseen.clear()
    await own.look()
    api.objects = {LEASE: api.objects[LEASE]}  # the API server has forgotten them
    unseen[PODS] = "no right"
    await own.look()
    assert len(api.posted()) == 1


async def test_an_event_that_was_not_taken_is_posted_at_a_later_look() -> None:
    api = Server()
    own, slept = own_events(api, {PODS: "no right"}), []
    api.faults = [ServerUnavailable("down", status=503)]

    async def sleep(delay_s: float) -> None:
        slept.append((delay_s, len(api.posted())))
        if len(slept) == 3:
            raise asyncio.CancelledError

    await asyncio.gather(own.run(sleep), return_exceptions=True)
    assert slept == [(LOOK_S, 0), (LOOK_S, 1), (LOOK_S, 1)]


async def test_what_the_operator_cannot_see_is_no_event_of_any_model() -> None:
    api = Server()
    for kind in (kinds.POD, kinds.DISRUPTION_BUDGET):
        for number in range(MODELS):
            api.objects[f"{kinds.MODEL.path('ns', f'm{number}')}/status"] = {"metadata": {}}
            told = serving(pod("a", revision_of()))
            key = Key("ns", f"m{number}")
            observed = dataclasses.replace(told.observed, key=key, blind={kind.name: "no right"})
            assert await report(api, dataclasses.replace(told, observed=observed), NOW)
    assert api.posted() == []


async def test_what_a_model_may_not_have_is_its_event_still() -> None:
    api = Server()
    api.objects[f"{kinds.MODEL.path('ns', 'm')}/status"] = {"metadata": {}}
    told = serving(pod("a", revision_of()))
    outcome = Outcome((Fault("Forbidden", "Service m: no right to create it"),))
    await report(api, dataclasses.replace(told, outcome=outcome), NOW)
    [event] = api.posted()
    assert (event["involvedObject"]["kind"], event["reason"]) == ("GuidedModel", "Forbidden")
