"""Each task and thread that must live is made to raise something once, and goes on with its work.

What the owner of all of them does is in test_contract_tasks.py.
"""

import asyncio
import contextlib
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from guided_contract import tasks, wire
from guided_contract.config import PodConfig, PortsConfig, RestartConfig
from guided_contract.heartbeat import Heartbeats
from guided_contract.http_port import HttpPort
from guided_engine.admission.service_connection import ServiceConnection
from guided_engine.heartbeats import Pulse
from guided_engine.launcher.probes import Probes
from guided_engine.launcher.stall import HealthWatch, StallWatch
from guided_engine.service_link import ServiceLink
from guided_operator import main
from guided_operator.kube.reflector import Reflector
from guided_operator.kube.store import Store
from guided_operator.watch.informers import Watches
from guided_sidecar.grammar.pool.restart_budget import RestartBudget
from guided_sidecar.grammar.pool.worker_process import Template
from guided_sidecar.grammar.pool.workers import Workers as GrammarWorkers
from guided_sidecar.grammar.prepare import named_grammars
from guided_sidecar.grammar.prepare.named_grammars import NamedGrammars
from guided_sidecar.health import probe, server
from guided_sidecar.health.probe import GuidedProbe
from guided_sidecar.health.server import HealthServer
from guided_sidecar.settings import Settings
from guided_sidecar.socket.snapshot import ServiceSnapshot
from guided_sidecar.telemetry.incidents import WorkerRestarts
from guided_sidecar.telemetry.metrics import SidecarMetrics
from support.fake_service import FakeService
from support.memory_api import MemoryApi
from support.spans import MemorySpans
from support.waiting import until


class UnforeseenError(Exception):
    """What nobody has a handler for."""


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises at its first call, and then does as the given one."""
    raised = False

    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal raised
        if not raised:
            raised = True
            raise UnforeseenError
        return function(*args, **kwargs)

    return called


@pytest.fixture(autouse=True)
def failures(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count this test's alone, and let nobody wait."""
    counted: Counter[str] = Counter()
    monkeypatch.setattr(tasks, "failures", counted)
    monkeypatch.setattr(tasks, "_FIRST_DELAY_S", 0.01)
    return counted


@pytest.fixture
def pod() -> Iterator[PodConfig]:
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:
        ports = PortsConfig(engine=unused_port(), launcher=unused_port(), sidecar=unused_port())
        yield PodConfig(
            name="tiny",
            model="/m",
            tokenizer="/m",
            served_name="tiny",
            run_dir=folder,
            bind_host="127.0.0.1",
            ports=ports,
        )


@contextlib.asynccontextmanager
async def engine(pod: PodConfig) -> AsyncIterator[None]:
    """vLLM's API: a completion."""
    app = web.Application()
    answers = {
        "/health": web.Response,
        "/v1/completions": lambda: web.json_response(
            {"choices": [{"text": '"ranked"', "finish_reason": "stop"}]}
        ),
    }

    async def answer(request: web.Request) -> web.Response:
        return answers[request.path]()

    for path in answers:
        app.router.add_route("*", path, answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", pod.ports.engine).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def status_of(port: int, path: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status


# --- the sidecar ---


async def test_the_judge(pod: PodConfig, failures: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    health = HealthServer(Settings(pod=pod), ServiceSnapshot, SidecarMetrics(), lambda: -math.inf)
    monkeypatch.setattr(server, "_PERIOD_S", 0.01)
    made = []
    monkeypatch.setattr(server, "judge", once(lambda reading: made.append(reading) or health._verdict))
    await health.start()
    await until(lambda: len(made) > 2)
    assert failures["judge"] == 1
    assert 'guidedmodel_task_failures_total{task="judge"} 1.0' in health._page().decode()
    await health.stop()


async def test_the_guided_probe(
    pod: PodConfig, failures: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hello = wire.Hello(role="launcher", pid=1, boot="b")
    rank = wire.Hello(role="rank", pid=2, boot="b", rank=0, samples=True)
    pod = msgspec.structs.replace(
        pod, guided_decoding=msgspec.structs.replace(pod.guided_decoding, placement="Scheduler")
    )
    snapshot = ServiceSnapshot(hellos=(hello, rank))
    asking = GuidedProbe(pod, lambda: snapshot, lambda: 0, lambda: -math.inf, poll_s=0.01)
    monkeypatch.setattr(probe, "judge_answer", once(probe.judge_answer))
    async with engine(pod):
        asking.start()
        await until(lambda: asking.passed)
        await asking.stop()
    assert failures["guided-probe"] == 1


async def test_who_follows_named_grammars(
    tmp_path: Path, failures: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder: Any = None
    named = NamedGrammars(tmp_path, tmp_path / "kept", holder, poll_s=0.01)
    named.start()
    monkeypatch.setattr(named_grammars, "_read", once(named_grammars._read))
    (tmp_path / "card.Regex").mkdir()  # no text: nothing to compile, and a state to tell of
    await until(lambda: [state.name for state in named.states] == ["card"])
    await named.stop()
    assert failures["named-grammars"] == 1


async def test_who_keeps_grammar_workers(
    pod: PodConfig, failures: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = asyncio.Event()

    async def start(_template: Template, _timeout_s: float) -> None:
        started.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Template, "start", once(start))
    budget, restarts = RestartBudget(RestartConfig()), WorkerRestarts(MemorySpans().tracer)
    workers = GrammarWorkers(Settings(pod=pod), budget, restarts, wanted=lambda: 1, most=1)
    workers.start()
    await asyncio.wait_for(started.wait(), 10)
    await workers.stop()
    assert failures["grammar-workers"] == 1


async def test_a_port(failures: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "connect_accepted_socket", once(loop.connect_accepted_socket))
    port = unused_port()
    served = HttpPort(web.AppRunner(web.Application(), access_log=None), "127.0.0.1", port)
    await served.start()
    assert await status_of(port, "/") == 404  # asked for again: the first connection was cut
    await served.stop()
    assert failures["http-port"] == 1


# --- the launcher and the engine's processes ---


@pytest.mark.parametrize(("task", "watch"), [("steps", StallWatch), ("health", HealthWatch)])
async def test_the_launchers_watches(
    pod: PodConfig, failures: Counter[str], monkeypatch: pytest.MonkeyPatch, task: str, watch: type
) -> None:
    said: list[str] = []
    monkeypatch.setattr(watch, "verdict", once(lambda *_, **__: said.append("") or ""))
    beats = Heartbeats.create(pod.heartbeats_file)
    probes = Probes(pod, beats)
    await probes.start()
    await until(lambda: said)
    assert await status_of(pod.ports.launcher, "/livez") == 200
    await probes.stop()
    beats.close()
    assert failures[task] == 1


async def test_the_launchers_connection_to_the_service(pod: PodConfig, failures: Counter[str]) -> None:
    hello = wire.Hello(role="launcher", pid=os.getpid(), boot="b")
    connection = ServiceConnection(pod.service_socket, once(lambda: hello), lambda _: None)
    living = tasks.Living("service-connection", connection.run)
    with FakeService(pod.service_socket):
        living.start()
        await asyncio.wait_for(connection.established.wait(), 10)
        await living.stop()
    assert failures["service-connection"] == 1


def test_a_heartbeat(pod: PodConfig, failures: Counter[str]) -> None:
    beats = Heartbeats.create(pod.heartbeats_file)
    pulse = Pulse(pod.heartbeats_file, 0, once(lambda: 1))
    pulse.start()
    deadline_s = time.monotonic() + 10
    while not beats.read(0).busy:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    pulse.stop()
    beats.close()
    assert failures["pulse"] == 1


def test_a_ranks_link(pod: PodConfig, failures: Counter[str]) -> None:
    hello = wire.Hello(role="core", pid=os.getpid(), boot="b")
    link = ServiceLink(pod.service_socket, once(lambda: hello))
    with FakeService(pod.service_socket) as service:
        link.start()
        assert service.wait_for(wire.Hello) == hello
        link.stop()
    assert failures["guided-service-link"] == 1


# --- the operator ---


async def test_a_watch(failures: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reflector, "_list", once(Reflector._list))
    store = Store()
    watches = Watches(MemoryApi(), store, store, lambda _: None, [])
    watching = asyncio.create_task(watches.run())
    await asyncio.wait_for(watches.synced(), 10)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert failures["watch"] == 1


async def test_the_reader_of_sidecars_pages(failures: Counter[str]) -> None:
    reads = asyncio.Event()

    async def at_once() -> None:
        pass

    async def read() -> None:
        reads.set()
        await asyncio.Event().wait()

    parts: Any = SimpleNamespace(
        watches=SimpleNamespace(synced=at_once),
        lease=SimpleNamespace(acquire=at_once, keep=asyncio.Event().wait),
        sidecars=SimpleNamespace(run=once(read)),
        own_events=SimpleNamespace(run=at_once),
        workers=None,
        worker_count=0,
    )
    leading = asyncio.create_task(main._lead(parts))
    await asyncio.wait_for(reads.wait(), 10)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert failures["sidecar-pages"] == 1
