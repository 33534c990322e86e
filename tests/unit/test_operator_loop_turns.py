"""A rollout that turns in its middle: the pods wait, paused, until their controller knows which there are."""

from typing import Any

import pytest

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.reconcile.apply import Applier, Outcome
from support.memory_api import MemoryApi
from support.observed import model, planned, seen

Object = dict[str, Any]
PATH = kinds.DEPLOYMENT.path("ns", "m")
SETS = kinds.api_path("apps/v1", kinds.REPLICA_SETS, "ns")


class World:
    """A model of three replicas whose children are written; `number` tells its pods' templates apart."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.applier = Applier(self.api, lambda *_: None)

    async def ask(self, number: int, replicas: int = 3, **rollout: Any) -> Outcome:
        raw = model(replicas=replicas, rollout=rollout)
        raw["spec"]["engine"]["env"] = [{"name": "APP_NUMBER", "value": str(number)}]
        observed = seen(raw, children=self.api.children())
        self.api.writes.clear()
        outcome = await self.applier.apply(observed, planned(observed))
        if PATH in (path for _, path in self.api.writes):
            metadata = self.deployment["metadata"]
            metadata["generation"] = metadata.get("generation", 0) + 1
        return outcome

    def controller_says(self, updated: int, replicas: int = 3, ready: int = 3) -> None:
        """Let the Deployment's status say so of what it asks for now."""
        item = self.deployment
        counts = {"replicas": replicas, "readyReplicas": ready, "availableReplicas": ready}
        observed = {"observedGeneration": item["metadata"]["generation"], "updatedReplicas": updated}
        item["status"] = {**counts, **observed}

    def replica_set(self, name: str, wants: int, has: int, *, ready: int, seen: bool = True) -> None:
        counts = {"replicas": has, "readyReplicas": ready, "availableReplicas": ready}
        self.api.objects[f"{SETS}/{name}"] = {
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "generation": 7,
                "labels": {names.LABEL_NAME: "m"},
                "ownerReferences": [{"controller": True, "uid": self.deployment["metadata"]["uid"]}],
            },
            "spec": {"replicas": wants},
            "status": {**counts, "observedGeneration": 7 if seen else 6},
        }

    @property
    def deployment(self) -> Object:
        return self.api.objects[PATH]

    @property
    def is_paused(self) -> bool:
        return bool(self.deployment["spec"].get("paused"))

    def runs(self, number: int) -> bool:
        template = str(self.deployment["spec"]["template"])
        return f"'APP_NUMBER', 'value': '{number}'" in template


async def turned() -> World:
    """Return a world whose rollout from 1 to 2 is turned back to 1 in its middle."""
    world = World()
    await world.ask(1)
    world.controller_says(updated=3)
    assert not (await world.ask(2)).turning
    world.controller_says(updated=1)
    assert (await world.ask(1)).turning
    return world


async def test_a_rollout_that_begins_at_rest_is_not_held() -> None:
    world = World()
    await world.ask(1)
    world.controller_says(updated=3, ready=0)  # pods of one template, whether or not they work
    assert not (await world.ask(2)).turning
    assert (world.runs(2), world.is_paused) == (True, False)


async def test_a_turn_is_written_paused_and_let_go_when_the_controller_knows_all_pods() -> None:
    world = await turned()
    assert (world.runs(1), world.is_paused) == (True, True)
    world.replica_set("one", wants=2, has=2, ready=2)
    world.replica_set("two", wants=1, has=1, ready=1)
    assert (await world.ask(1)).turning, "its controller has not seen the pause"
    world.controller_says(updated=2)
    assert not (await world.ask(1)).turning
    assert (world.runs(1), world.is_paused) == (True, False)


@pytest.mark.parametrize(
    ("wants", "has", "ready", "is_seen"),
    [
        (1, 2, 2, True),  # has not told one to end that it does not want
        (1, 1, 1, True),  # fewer than the Deployment's controller counts
        (2, 2, 1, True),
        (2, 2, 2, False),  # has not looked at what it wants now
    ],
)
async def test_a_status_that_lags_holds_a_turn(wants: int, has: int, ready: int, *, is_seen: bool) -> None:
    world = await turned()
    world.controller_says(updated=2)
    world.replica_set("two", wants=1, has=1, ready=1)
    world.replica_set("one", wants=wants, has=has, ready=ready, seen=is_seen)
    assert (await world.ask(1)).turning
    assert world.is_paused
    world.replica_set("one", wants=2, has=2, ready=2)
    assert not (await world.ask(1)).turning


async def test_a_pause_that_is_asked_for_is_no_turn_and_its_end_is_one() -> None:
    world = World()
    await world.ask(1)
    world.controller_says(updated=3)
    await world.ask(2)
    world.controller_says(updated=1)
    assert not (await world.ask(3, paused=True)).turning
    assert world.is_paused
    assert (await world.ask(3)).turning
    assert world.is_paused
