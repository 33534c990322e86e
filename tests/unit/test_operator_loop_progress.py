"""When a rollout of groups counts as stuck: a progress deadline as a Deployment's controller keeps it."""

import dataclasses
from typing import Any

import pytest

from guided_operator.reconcile.conditions.progress_deadline import OVERDUE, Progress
from guided_operator.reconcile.conditions.situation import Situation
from support.observed import applied, model, pod, reason, revision_of, seen, situation

DEADLINE_S = 600.0
Object = dict[str, Any]


class World:
    """One model of two groups of two nodes."""

    def __init__(self, **rollout: Any) -> None:
        self.now_s = 1000.0
        self.progress = Progress(lambda: self.now_s)
        self.rollout = {"progressDeadline": "10m", **rollout}
        self.status: Object = {}

    def raw(self, replicas: int = 2, number: int = 1) -> Object:
        times, spread = {"startupTimeout": "10m"}, {"tensor": 2, "nodes": 2}
        raw = model(replicas=replicas, parallelism=spread, probes=times, rollout=self.rollout)
        raw["spec"]["engine"]["env"] = [{"name": "APP_NUMBER", "value": str(number)}]
        return {**raw, "status": self.status}

    def situation(self, ready: int, **asked: int) -> Situation:
        raw = self.raw(**asked)
        revision = revision_of(raw)
        pods = tuple(
            pod(f"p{number}", revision, group=str(number // 2), node=number % 2, ready=number < ready)
            for number in range(4)
        )
        return situation(dataclasses.replace(applied(seen(raw)), pods=pods))

    def left_s(self, ready: int, *, after_s: float = 0.0, **asked: int) -> float | None:
        self.now_s += after_s
        return self.progress.left_s(self.situation(ready, **asked))


def test_time_runs_from_the_last_progress_and_not_from_pods_that_begin_again() -> None:
    world = World()
    assert world.left_s(0) == DEADLINE_S
    assert world.left_s(2, after_s=100) == DEADLINE_S
    assert world.left_s(0, after_s=100) == 500, "a group that began again took the progress back"
    assert world.left_s(2, after_s=100) == 400, "and so it was none"
    assert world.left_s(3, after_s=100) == DEADLINE_S
    assert world.left_s(3, after_s=700) == 0
    assert world.left_s(3, number=2) == DEADLINE_S, "something else is asked for"
    assert world.left_s(3, number=2, replicas=3, after_s=10) == DEADLINE_S


def test_what_is_complete_is_not_judged_until_something_else_is_asked_for() -> None:
    world = World()
    assert world.left_s(4) is None
    assert world.left_s(3, after_s=10_000) is None, "a pod that fails is no rollout"
    assert world.left_s(3, number=2) == DEADLINE_S


def test_a_pause_does_not_count() -> None:
    world = World()
    assert world.left_s(2) == DEADLINE_S
    world.rollout["paused"] = True
    assert world.left_s(2, after_s=500) is None
    world.rollout["paused"] = False
    assert world.left_s(2, after_s=100) == 500


@pytest.mark.parametrize(("generation", "left_s"), [(3, 0.0), (2, DEADLINE_S)])
def test_an_operators_restart_does_not_take_the_verdict_back(generation: int, left_s: float) -> None:
    world = World()
    said: Object = {"type": "Progressing", "status": "False", "reason": OVERDUE, "message": ""}
    said |= {"observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    world.status = {"conditions": [said]}
    assert world.left_s(2) == left_s


def test_a_deployment_is_left_to_its_controller() -> None:
    world = World()
    alone = situation(applied(seen(model(replicas=2))))
    assert world.progress.left_s(alone) is None


def test_what_is_said_of_it() -> None:
    stuck = dataclasses.replace(World().situation(2), overdue=True)
    assert reason(stuck, "Progressing") == ("False", OVERDUE)
