"""Several nodes: which ranks are where, when a node that is not the first is ready, and how it ends."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guided_contract import names
from guided_contract.config import GuidedDecodingConfig, PodConfig
from guided_contract.heartbeat import Beat, Heartbeats, now_ns
from guided_contract.wire import Hello
from guided_engine.cpus import Cpus
from guided_engine.launcher.command import plan
from guided_engine.launcher.drain import wait_gone
from guided_engine.launcher.probes import Probes
from guided_sidecar.health import engine_state
from guided_sidecar.health.engine_state import EngineState
from guided_sidecar.health.probe import ProbeStatus
from guided_sidecar.health.readiness import Reading, judge
from guided_sidecar.health.status_page import page
from guided_sidecar.socket.snapshot import ServiceSnapshot
from support.engine import pod_config
from support.sidecar import until

LAUNCHER = Hello(role="launcher", pid=1, boot="here")
UNTOUCHED = Hello(role="launcher", pid=1, boot="here", unsupported="vLLM 1.0 is not supported")
RANK = Hello(role="rank", pid=4, boot="here", rank=1, samples=True)


def second(placement: Any = "Rank", **changes: Any) -> Reading:
    """Return what a second node reads when all is well: no API server, no core, no grammar worker."""
    guided = GuidedDecodingConfig(placement=placement)
    snapshot = ServiceSnapshot(hellos=(LAUNCHER, RANK), expected_ranks=range(1, 2))
    reading = Reading(
        config=pod_config(Path("/run"), tensor_parallel=2, nodes=2, guided_decoding=guided),
        snapshot=snapshot,
        engine=EngineState(running=True),
        probe=ProbeStatus(state="Pending"),
        node=1,
    )
    own = {name: changes.pop(name) for name in ("engine", "draining", "node") if name in changes}
    return replace(reading, snapshot=replace(snapshot, **changes), **own)


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({}, "", ""),
        ({"placement": "Scheduler"}, "", ""),
        ({"placement": "Scheduler", "hellos": (UNTOUCHED,), "engine": EngineState(running=False)}, "", ""),
        ({"hellos": (LAUNCHER,)}, "RanksMissing", "1 of 1 ranks are not connected: 1"),
        ({"unlinked": frozenset({1})}, "RanksMissing", "sidecar of the first node: rank 1"),
        ({"engine": EngineState(running=False)}, "EngineStalled", ""),
        ({"draining": True}, "Draining", ""),
    ],
)
def test_second_node_needs_its_ranks_and_that_the_first_node_knows_them(
    changes: Any, reason: str, message: str
) -> None:
    verdict = judge(second(**changes))
    assert (verdict.ready, verdict.reason) == (not reason, reason)
    assert message in verdict.message


@pytest.mark.parametrize(("node", "boot", "state"), [(1, "there", "Connected"), (0, "before", "Missing")])
def test_first_node_counts_ranks_of_other_engine_starts_on_other_nodes(
    node: int, boot: str, state: str
) -> None:
    other = Hello(role="rank", pid=4, boot=boot, rank=1, samples=True, node=node)
    near = Hello(role="rank", pid=4, boot="here", rank=0, samples=True)
    reading = second(hellos=(LAUNCHER, near, other), expected_ranks=range(2), node=0)
    assert [rank.state for rank in page(reading, judge(reading)).ranks] == ["Connected", state]


def test_node_without_a_core_runs_when_all_of_its_ranks_beat(tmp_path: Path) -> None:
    path = tmp_path / "heartbeats"
    assert not engine_state.read_workers(path, range(1, 3), now_ns()).running
    beats = Heartbeats.create(path)
    now = now_ns()
    beats.write(1 + 1, Beat(7, now, 0, now, 0))
    assert not engine_state.read_workers(path, range(1, 3), now).running
    beats.write(1 + 2, Beat(8, now, 0, now, 0))
    assert engine_state.read_workers(path, range(1, 3), now) == EngineState(running=True)
    later = engine_state.read_workers(path, range(1, 3), now + engine_state.FRESH_NS + 1_000_000_000)
    assert later.stall.startswith("rank 1 has not responded")
    beats.close()


async def test_launcher_of_a_second_node_has_started_when_its_ranks_beat(tmp_path: Path) -> None:
    beats = Heartbeats.create(tmp_path / "heartbeats")
    probes = Probes(second().config, beats, node=1)
    for rank in (0, 1):  # the first node's, and its own
        assert not await probes._is_good()
        beats.write(1 + rank, Beat(7, now_ns(), 0, now_ns(), 0))
    assert await probes._is_good()
    beats.close()


async def test_launcher_of_a_second_node_without_heartbeats_has_started_when_the_first_has(
    tmp_path: Path,
) -> None:
    beats, pod = Heartbeats.create(tmp_path / "heartbeats"), second().config
    first, other = Probes(pod, beats), Probes(pod, beats, node=1, first="127.0.0.1")
    await first.start()
    assert not await other._is_good()
    first._good_ns = now_ns()
    assert await other._is_good()
    await first.stop()
    beats.close()


async def test_second_node_stays_until_the_first_has_gone_or_its_time_is_up() -> None:
    knocks: list[asyncio.StreamReader] = []

    def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        knocks.append(reader)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await wait_gone("127.0.0.1", port, 1.0)
    assert knocks, "the first one is still there"
    knocks.clear()
    waiting = asyncio.create_task(wait_gone("127.0.0.1", port, 60))
    await until(lambda: bool(knocks))
    assert not waiting.done()
    server.close()
    await server.wait_closed()
    async with asyncio.timeout(20):
        await waiting


def pod(tensor: int, pipeline: int, nodes: int) -> PodConfig:
    fields: dict[str, Any] = dict.fromkeys(("name", "model", "tokenizer", "served_name", "run_dir"), "m")
    return PodConfig(**fields, tensor_parallel=tensor, pipeline_parallel=pipeline, nodes=nodes)


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


@pytest.mark.parametrize("node", ["0", "1"])
def test_first_node_serves_and_the_others_have_ranks_alone(node: str) -> None:
    env = {names.ENV_NODE: node, names.ENV_LEADER: "m-nodes-0.m-nodes.ns"}
    argv = plan(pod(4, 1, 2), ("--model", "m"), env, Cpus(4)).argv
    words = " ".join(argv)
    assert f"--nnodes 2 --node-rank {node}" in words
    assert "--master-addr m-nodes-0.m-nodes.ns --master-port 8004" in words
    assert ("--headless" in argv) == (node == "1")
