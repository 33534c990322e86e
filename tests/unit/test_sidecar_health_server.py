"""The sidecar's HTTP port, from a pod that starts until it is ready and its engine stalls."""

import asyncio
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from guided_contract import status, tasks
from guided_contract.heartbeat import Beat, Heartbeats, now_ns
from guided_contract.records import MatchersRestart
from guided_contract.wire import Hello
from guided_sidecar.grammar.pool.workers import WorkersState
from guided_sidecar.grammar.prepare.known import KnownState
from guided_sidecar.health import server
from guided_sidecar.health.server import HealthServer
from guided_sidecar.settings import Settings
from guided_sidecar.socket.snapshot import ServiceSnapshot
from guided_sidecar.telemetry.metrics import SidecarMetrics
from support.collectors import eventually
from support.engine import pod_config
from support.monitored import request

HELLOS = (
    Hello(role="launcher", pid=1, boot="b", versions={"vllm": "0.32.0"}),
    Hello(role="api", pid=2, boot="b"),
    Hello(role="core", pid=3, boot="b"),
    Hello(role="rank", pid=4, boot="b", rank=0, samples=True, speculation="ngram_gpu"),
)


class Pod:
    """A health server with everything that it looks at."""

    def __init__(self, folder: Path) -> None:
        self.config = pod_config(folder)
        self.snapshot = ServiceSnapshot()
        self.metrics = SidecarMetrics()
        self.server = HealthServer(Settings(pod=self.config), lambda: self.snapshot, self.metrics)

    def beat(self, *, step_ns: int | None = None, busy: int = 0, drafts: int = 0) -> None:
        beats = Heartbeats.create(self.config.heartbeats_file)
        beats.write(0, Beat(3, now_ns(), 1, now_ns() if step_ns is None else step_ns, busy, drafts))
        beats.close()

    async def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.config.ports.sidecar}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def get_when(self, path: str, holds: Callable[[int, str], Any]) -> str:
        """Return an answer as soon as this holds for it."""
        async with asyncio.timeout(5):
            while not holds(*(told := await self.get(path))):
                pass
        return told[1]

    async def is_unready_with(self, reason: str) -> str:
        return await self.get_when("/readyz", lambda code, text: code == 503 and text.startswith(reason))


@pytest.fixture
async def pod(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pod]:
    monkeypatch.setattr(server, "_PERIOD_S", 0.02)
    with tempfile.TemporaryDirectory() as folder:
        made = Pod(Path(folder))
        await made.server.start()
        yield made
        await made.server.stop()


@pytest.mark.parametrize("target", ["nowhere", "draining", "n" * 300])
async def test_whatever_is_called_draining_means_that_the_pod_drains(pod: Pod, target: str) -> None:
    """As the engine's container could link it to a place that none can read."""
    pod.config.draining_file.symlink_to(target)
    await eventually(lambda: pod.server._reading.draining)
    assert not tasks.failures["judge"]


async def test_startup_is_the_socket_and_never_the_engine(pod: Pod) -> None:
    assert (await pod.get("/startupz"))[0] == 503
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(pod.config.service_socket))
        assert await pod.get("/startupz") == (200, "ok\n")


async def test_a_pod_becomes_ready_and_its_stalled_engine_makes_it_unready(pod: Pod) -> None:
    async def complete(_: web.Request) -> web.Response:
        return web.json_response({"choices": [{"text": '"guided"', "finish_reason": "stop"}]})

    engine = web.Application()
    engine.router.add_post("/v1/completions", complete)
    async with TestServer(engine, port=pod.config.ports.engine):
        await pod.is_unready_with("PluginInactive")
        pod.snapshot = ServiceSnapshot(hellos=HELLOS[:3], workers=WorkersState(idle=1, forks=1))
        await pod.is_unready_with("RanksMissing")
        pod.snapshot = ServiceSnapshot(hellos=HELLOS)
        await pod.is_unready_with("EngineStalled")
        pod.beat()
        await pod.is_unready_with("GrammarsPending")
        pod.snapshot = ServiceSnapshot(hellos=HELLOS, workers=WorkersState(idle=1, forks=1))
        assert await pod.get_when("/readyz", lambda code, _: code == 200) == "ok\n"
        pod.beat(step_ns=now_ns() - 30 * 10**9, busy=2)
        assert "completed no step for 30 s" in await pod.is_unready_with("EngineStalled")


async def test_metrics_tell_what_health_and_records_say(pod: Pod) -> None:
    """All names: test_metrics.py."""
    restarts = Counter(crashed=3, idle=1)
    answers, proofs = Counter(joined=7, none=1), Counter(finished=6)
    cache = KnownState(size_bytes=9, evictions=5, answers=answers, proofs=proofs, unenforced=4)
    pod.snapshot = ServiceSnapshot(
        hellos=HELLOS, workers=WorkersState(idle=2, forks=2, restarts=restarts), cache=cache
    )
    await pod.is_unready_with("EngineStalled")
    pod.metrics.take(request(400, "grammar_invalid"))
    code, text = await pod.get("/metrics")
    assert code == 200
    assert {
        'requests_total{error_code="grammar_invalid",kind="json",status="400"} 1.0',
        'request_duration_seconds_sum{kind="json"} 0.3',
        "ready 0.0",
        "ranks_connected 1.0",
        "grammar_workers_ready 2.0",
        'grammar_worker_restarts_total{reason="crashed"} 3.0',
        'grammar_worker_restarts_total{reason="deadline"} 0.0',
        'grammar_cache_lookups_total{result="joined"} 7.0',
        "grammar_cache_evictions_total 5.0",
        "grammar_cache_bytes 9.0",
        "grammar_unenforced_total 4.0",
        'grammar_proofs_total{result="finished"} 6.0',
        'rank_desyncs_total{rank="0"} 0.0',
        'guided_probe{state="Pending"} 1.0',
        'guided_probe{state="Passed"} 0.0',
    } <= {line.removeprefix("guidedmodel_") for line in text.splitlines()}


async def test_the_page_tells_how_often_each_ranks_matchers_were_replaced(pod: Pod) -> None:
    pod.snapshot = ServiceSnapshot(expected_ranks=range(2))
    pod.metrics.take(MatchersRestart(rank=1))

    def is_told(_code: int, text: str) -> bool:
        return [one.restarts for one in status.decode(text.encode()).ranks] == [0, 1]

    await pod.get_when("/status", is_told)


async def test_the_page_tells_how_the_engine_speculates_and_with_how_many_tokens_now(pod: Pod) -> None:
    """The method by a rank's word, the tokens by the engine core's last step."""
    pod.snapshot = ServiceSnapshot(hellos=HELLOS)
    for tokens in (None, 3, 0):
        if tokens is not None:
            pod.beat(drafts=tokens)
        said = status.SpeculationStatus(
            method="ngram_gpu", num_tokens=None if tokens is None else (tokens, tokens)
        )
        await pod.get_when(
            "/status", lambda _, text, said=said: status.decode(text.encode()).speculation == said
        )
