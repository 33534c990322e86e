"""Which ranks are where: vLLM numbers them stage by stage, and deals them to the nodes in that order."""

import pytest

from guided_contract import names
from guided_contract.config import PodConfig
from guided_engine.cpus import Cpus
from guided_engine.launcher.command import plan


def pod(tensor: int, pipeline: int, nodes: int) -> PodConfig:
    return PodConfig(
        name="m",
        model="m",
        tokenizer="m",
        served_name="m",
        run_dir="/nowhere",
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        nodes=nodes,
    )


@pytest.mark.parametrize(
    ("tensor", "pipeline", "nodes", "sampling"),
    [
        (2, 1, 1, [[0, 1]]),
        (4, 1, 2, [[0, 1], [2, 3]]),
        (2, 2, 2, [[], [0, 1]]),
        (4, 2, 4, [[], [], [0, 1], [2, 3]]),
        (2, 2, 4, [[], [], [0], [1]]),
    ],
)
def test_the_last_stage_samples_wherever_it_is(
    tensor: int, pipeline: int, nodes: int, sampling: list[list[int]]
) -> None:
    spread = pod(tensor, pipeline, nodes)
    assert [list(spread.sampling_of(node)) for node in range(nodes)] == sampling
    everywhere = [worker for node in range(nodes) for worker in spread.workers_of(node)]
    assert everywhere == list(range(tensor * pipeline))


def command(node: str) -> tuple[str, ...]:
    env = {names.ENV_NODE: node, names.ENV_LEADER: "m-nodes-0.m-nodes.ns"}
    spread = pod(4, 1, 2)
    return plan(spread, ("--model", "m"), env, Cpus(4)).argv


def test_first_node_serves_and_the_others_have_ranks_alone() -> None:
    for node in ("0", "1"):
        words = " ".join(command(node))
        assert f"--nnodes 2 --node-rank {node}" in words
        assert "--master-addr m-nodes-0.m-nodes.ns --master-port 8004" in words
    assert "--headless" not in command("0")
    assert command("1")[-1] == "--headless"
