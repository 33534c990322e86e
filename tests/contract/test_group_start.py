"""Two pods of a group that start 15 minutes apart, in played time, by the times that vLLM is told to wait."""

import asyncio
import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from guided_operator.builders.pod import pod_template
from guided_operator.builders.workload import workload
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.progress_deadline import Progress
from support import vllm_start
from support.observed import model, pod, revision_of, serving
from support.played import played
from support.played_group import PlayedGroup, PlayedPod
from support.vllm_start import SITE, tiny_model
from support.worker_set_rules import AFTER_START

# What vLLM and torch warn of when imported is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")
Object = dict[str, Any]
NODES = {"tensor": 2, "nodes": 2}
LATE_S, LOAD_S, DAY_S = 900.0, 600.0, 86_400.0
STOCK_S = (600.0, 1800.0)


def limits_s(**fields: Any) -> tuple[float, float]:
    """Return how long vLLM waits in these pods."""
    words = vllm_start.command(tiny_model(parallelism=NODES, **fields)).argv
    parallel = vllm_start.configuration(words).parallel_config
    return parallel.distributed_timeout_seconds, parallel.cpu_distributed_timeout_seconds


def workers(**fields: Any) -> Object:
    gm = tiny_model(parallelism=NODES, **fields)
    return workload(gm, pod_template(gm, SITE), 1)


class Operator:
    """What the operator says of the group at each change."""

    def __init__(self) -> None:
        self._raw = model(parallelism=NODES)
        self._progress = Progress(asyncio.get_running_loop().time)
        self.said: list[tuple[str, bool]] = []

    def hear(self, pods: Sequence[PlayedPod]) -> None:
        key = revision_of(self._raw)
        seen = [
            pod(f"m-{node}", key, group="0", node=node, phase=each.phase, ready=each.ready)
            for node, each in enumerate(pods)
        ]
        found = serving(*seen, raw=self._raw)
        found = dataclasses.replace(found, overdue=self._progress.left_s(found) == 0)
        conditions = decide(found)
        self.said.append((conditions["Ready"].status, "Stalled" in conditions))


@played
async def test_they_become_ready_and_none_of_them_begins_again() -> None:
    operator = Operator()
    group = PlayedGroup(workers(), limits_s(), pulls_s=(0, LATE_S), load_s=LOAD_S, tell=operator.hear)
    await group.play(DAY_S)
    assert asyncio.get_running_loop().time() == LATE_S + LOAD_S
    assert (group.recreated, [each.restarts for each in group.pods]) == (0, [0, 0])
    assert operator.said[-1] == ("True", False)
    assert set(operator.said[:-1]) == {("False", False)}, "neither ready nor stuck before"


@played
async def test_a_longer_startup_timeout_is_as_good_for_a_later_pod() -> None:
    hours = {"probes__startupTimeout": "3h"}
    group = PlayedGroup(workers(**hours), limits_s(**hours), pulls_s=(0, 5400), load_s=2400)
    await group.play(DAY_S)
    assert (group.is_ready, group.recreated) == (True, 0)


@pytest.mark.parametrize("late_s", [LATE_S, 5400.0])
def test_by_the_policy_they_become_ready_even_if_one_began_again(late_s: float) -> None:
    """Either because vLLM waits as long as it does by itself, or because the startup probe has struck."""

    @played
    async def run() -> None:
        group = PlayedGroup(workers(), STOCK_S, pulls_s=(0, late_s), load_s=LOAD_S)
        await group.play(DAY_S)
        assert (group.is_ready, group.recreated) == (True, 1)

    run()


@played
async def test_played_without_either_they_never_become_ready() -> None:
    """The play shows what is wrong: whenever the first gives up, the other's pull was for nothing."""
    older = copy.deepcopy(workers())
    del older["metadata"]["annotations"][AFTER_START]
    group = PlayedGroup(older, STOCK_S, pulls_s=(0, LATE_S), load_s=LOAD_S)
    await group.play(DAY_S)
    assert not group.is_ready
    assert group.recreated > 100
