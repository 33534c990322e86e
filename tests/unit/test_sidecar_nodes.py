"""A node that is not its replica's first: when it is ready, and how long it stays for the first one."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from guided_contract.config import GuidedDecodingConfig, PodConfig
from guided_contract.heartbeat import Beat, Heartbeats, now_ns
from guided_contract.wire import Hello
from guided_engine.launcher.drain import wait_gone
from guided_engine.launcher.probes import Probes
from guided_sidecar.health import engine_state
from guided_sidecar.health.engine_state import EngineState
from guided_sidecar.health.probe import ProbeStatus
from guided_sidecar.health.readiness import Reading, judge
from guided_sidecar.health.status_page import page
from guided_sidecar.socket.snapshot import ServiceSnapshot
from support.sidecar import until

LAUNCHER = Hello(role="launcher", pid=1, boot="here")
RANK = Hello(role="rank", pid=4, boot="here", rank=1, samples=True)


def pod(placement: str = "Rank", run_dir: str = "/run") -> PodConfig:
    return PodConfig(
        name="tiny",
        model="/m",
        tokenizer="/m",
        served_name="tiny",
        run_dir=run_dir,
        tensor_parallel=2,
        nodes=2,
        guided_decoding=GuidedDecodingConfig(placement=placement),  # type: ignore[arg-type]
    )


def second(placement: str = "Rank") -> Reading:
    """Return what a second node reads when all is well: no API server, no core, no grammar worker."""
    return Reading(
        config=pod(placement),
        snapshot=ServiceSnapshot(hellos=(LAUNCHER, RANK), expected_ranks=range(1, 2)),
        engine=EngineState(running=True),
        probe=ProbeStatus(state="Pending"),
        node=1,
    )


@pytest.mark.parametrize("placement", ["Rank", "Scheduler"])
def test_second_node_is_ready_without_api_server_core_and_grammar_workers(placement: str) -> None:
    assert judge(second(placement)).ready


def test_second_node_waits_for_its_ranks_and_for_the_first_node_to_know_them() -> None:
    told = second()
    gone = judge(replace(told, snapshot=replace(told.snapshot, hellos=(LAUNCHER,))))
    assert (gone.reason, gone.message) == ("RanksMissing", "1 of 1 ranks are not connected: 1")
    unlinked = judge(replace(told, snapshot=replace(told.snapshot, unlinked=frozenset({1}))))
    assert unlinked.reason == "RanksMissing"
    assert "sidecar of the first node: rank 1" in unlinked.message
    assert judge(replace(told, engine=EngineState(running=False))).reason == "EngineStalled"
    assert judge(replace(told, draining=True)).reason == "Draining"


def test_first_node_counts_ranks_of_other_engine_starts_on_other_nodes() -> None:
    far = Hello(role="rank", pid=4, boot="there", rank=1, samples=True, node=1)
    near = Hello(role="rank", pid=4, boot="here", rank=0, samples=True)
    before = Hello(role="rank", pid=4, boot="before", rank=1, samples=True)
    snapshot = ServiceSnapshot(hellos=(LAUNCHER, near, far), expected_ranks=range(2))
    reading = replace(second(), snapshot=snapshot, node=0)
    assert [rank.state for rank in page(reading, judge(reading)).ranks] == ["Connected", "Connected"]
    stale = replace(reading, snapshot=replace(snapshot, hellos=(LAUNCHER, near, before)))
    assert [rank.state for rank in page(stale, judge(stale)).ranks] == ["Connected", "Missing"]


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
    probes = Probes(pod(), beats, node=1)
    assert not await probes._is_good()
    beats.write(1 + 0, Beat(7, now_ns(), 0, now_ns(), 0))
    assert not await probes._is_good(), "that is the first node's"
    beats.write(1 + 1, Beat(7, now_ns(), 0, now_ns(), 0))
    assert await probes._is_good()
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
