"""The sidecar's HTTP port, from a pod that starts until it is ready and its engine stalls."""

import asyncio
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from guided_contract import status, tasks
from guided_contract.config import PodConfig, PortsConfig
from guided_contract.heartbeat import Beat, Heartbeats, now_ns
from guided_contract.records import HttpRequest
from guided_contract.wire import Hello
from guided_sidecar.grammar.pool.workers import WorkersState
from guided_sidecar.grammar.prepare.known import KnownState
from guided_sidecar.health import server
from guided_sidecar.health.server import HealthServer
from guided_sidecar.settings import Settings
from guided_sidecar.socket.snapshot import ServiceSnapshot
from guided_sidecar.telemetry.metrics import SidecarMetrics
from support.collectors import eventually

HELLOS = (
    Hello(role="launcher", pid=1, boot="b", versions={"vllm": "0.32.0"}),
    Hello(role="api", pid=2, boot="b"),
    Hello(role="core", pid=3, boot="b"),
    Hello(role="rank", pid=4, boot="b", rank=0, samples=True),
)


class Pod:
    """A health server with everything that it looks at."""

    def __init__(self, folder: Path) -> None:
        self.config = PodConfig(
            name="tiny",
            model="/m",
            tokenizer="/m",
            served_name="tiny",
            run_dir=str(folder),
            bind_host="127.0.0.1",
            ports=PortsConfig(sidecar=unused_port(), engine=unused_port()),
        )
        self.snapshot = ServiceSnapshot()
        self.metrics = SidecarMetrics()
        settings = Settings(pod=self.config)
        self.server = HealthServer(settings, lambda: self.snapshot, self.metrics)

    def beat(self, *, step_ns: int | None = None, busy: int = 0, drafts: int = 0) -> None:
        beats = Heartbeats.create(self.config.heartbeats_file)
        beats.write(0, Beat(3, now_ns(), 1, now_ns() if step_ns is None else step_ns, busy, drafts))
        beats.close()

    async def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.config.ports.sidecar}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def status_when(self, holds: Callable[[status.PodStatus], Any]) -> status.PodStatus:
        """Return the page as soon as this holds for it."""
        async with asyncio.timeout(5):
            while not holds(page := status.decode((await self.get("/status"))[1].encode())):
                pass
        return page

    async def is_unready_with(self, reason: str, *, deadline_s: float = 5) -> str:
        answer = ""

        async def matches() -> bool:
            nonlocal answer
            code, answer = await self.get("/readyz")
            return code == 503 and answer.startswith(reason)

        end = now_ns() + int(deadline_s * 1e9)
        while not await matches():
            assert now_ns() < end, answer
        return answer


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
async def pod(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pod]:
    monkeypatch.setattr(server, "_PERIOD_S", 0.02)
    made = Pod(folder)
    await made.server.start()
    yield made
    await made.server.stop()


@pytest.fixture
async def engine(pod: Pod) -> AsyncIterator[None]:
    """vLLM's API, which answers every completion as the mask would make it."""

    async def complete(_: web.Request) -> web.Response:
        return web.json_response({"choices": [{"text": '"guided"', "finish_reason": "stop"}]})

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", pod.config.ports.engine).start()
    yield
    await runner.cleanup()


@pytest.mark.parametrize("target", ["nowhere", "draining", "n" * 300])
async def test_whatever_is_called_draining_means_that_the_pod_drains(pod: Pod, target: str) -> None:
    pod.config.draining_file.symlink_to(
        target
    )  # as the engine's container could, to a place that none can read
    await eventually(lambda: pod.server._reading.draining)
    assert not tasks.failures["judge"]


async def test_startup_is_the_socket_and_never_the_engine(pod: Pod) -> None:
    assert (await pod.get("/startupz"))[0] == 503
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(pod.config.service_socket))
        assert await pod.get("/startupz") == (200, "ok\n")


async def test_a_pod_becomes_ready_and_its_stalled_engine_makes_it_unready(pod: Pod, engine: None) -> None:
    del engine
    await pod.is_unready_with("PluginInactive")
    pod.snapshot = ServiceSnapshot(hellos=HELLOS[:3], workers=WorkersState(idle=1, forks=1))
    await pod.is_unready_with("RanksMissing")
    pod.snapshot = ServiceSnapshot(hellos=HELLOS)
    await pod.is_unready_with("EngineStalled")
    pod.beat()
    await pod.is_unready_with("GrammarsPending")
    pod.snapshot = ServiceSnapshot(hellos=HELLOS, workers=WorkersState(idle=1, forks=1))
    await eventually(lambda: pod.server.probe.status.state == "Passed")
    await eventually(lambda: pod.server.verdict.ready)
    assert await pod.get("/readyz") == (200, "ok\n")
    pod.beat(step_ns=now_ns() - 30 * 10**9, busy=2)
    assert "completed no step for 30 s" in await pod.is_unready_with("EngineStalled")


async def test_metrics_tell_what_health_and_records_say(pod: Pod) -> None:
    pod.snapshot = ServiceSnapshot(
        hellos=HELLOS,
        workers=WorkersState(idle=2, forks=2, restarts=Counter(crashed=3, idle=1)),
        cache=KnownState(
            size_bytes=9,
            evictions=5,
            answers=Counter(joined=7, none=1),
            proofs=Counter(finished=6),
            unenforced=4,
        ),
    )
    await pod.is_unready_with("EngineStalled")
    failed = HttpRequest(
        dropped=3,
        trace_id="a" * 32,
        span_id="b" * 16,
        start_ns=0,
        end_ns=2_000_000_000,
        route="/v1/completions",
        status=400,
        kind="json",
        error_code="grammar_invalid",
    )
    pod.metrics.take(failed)
    code, text = await pod.get("/metrics")
    lines = text.splitlines()
    assert code == 200
    for line in (
        'guidedmodel_requests_total{error_code="grammar_invalid",kind="json",status="400"} 1.0',
        'guidedmodel_request_duration_seconds_sum{kind="json"} 2.0',
        "guidedmodel_records_dropped_total 3.0",
        "guidedmodel_ready 0.0",
        "guidedmodel_ranks_connected 1.0",
        "guidedmodel_grammar_workers_ready 2.0",
        'guidedmodel_grammar_worker_restarts_total{reason="crashed"} 3.0',
        'guidedmodel_grammar_worker_restarts_total{reason="deadline"} 0.0',
        'guidedmodel_grammar_cache_lookups_total{result="joined"} 7.0',
        'guidedmodel_grammar_cache_lookups_total{result="none"} 1.0',
        "guidedmodel_grammar_cache_evictions_total 5.0",
        "guidedmodel_grammar_cache_bytes 9.0",
        "guidedmodel_grammar_unenforced_total 4.0",
        'guidedmodel_grammar_proofs_total{result="finished"} 6.0',
        'guidedmodel_grammar_proofs_total{result="unfinished"} 0.0',
        'guidedmodel_rank_desyncs_total{rank="0"} 0.0',
        'guidedmodel_guided_probe{state="Pending"} 1.0',
        'guidedmodel_guided_probe{state="Passed"} 0.0',
    ):
        assert line in lines


async def test_the_page_tells_how_the_engine_speculates_and_with_how_many_tokens_now(pod: Pod) -> None:
    """The method by a rank's word, the tokens by the engine core's last step."""
    hello = Hello(role="rank", pid=1, boot="", rank=0, samples=True, speculation="ngram_gpu")
    pod.snapshot = ServiceSnapshot(hellos=(hello,))
    said = await pod.status_when(lambda page: page.speculation.method)
    assert said.speculation == status.SpeculationStatus(method="ngram_gpu", num_tokens=None)
    for tokens in (3, 0):
        pod.beat(drafts=tokens)
        await pod.status_when(lambda page, now=tokens: page.speculation.num_tokens == (now, now))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("grammar_unknown", "unknown"),
        ("request_unknown_constraint", "unknown"),
        ("sequence_processor_failed", "unguided"),
        (None, "unguided"),
    ],
)
def test_a_refusal_of_which_nobody_knows_the_kind_is_not_unguided(code: str | None, kind: str) -> None:
    metrics = SidecarMetrics()
    made = HttpRequest(
        trace_id="a" * 32,
        span_id="b" * 16,
        start_ns=0,
        end_ns=1,
        route="/v1/completions",
        status=400,
        error_code=code,
    )
    metrics.take(made)
    assert f'kind="{kind}",status="400"}} 1.0' in metrics.render().decode()
