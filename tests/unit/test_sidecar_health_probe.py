"""The guided probe against a server that answers as vLLM does, well or badly."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from guided_contract.config import GuidedDecodingConfig, PodConfig, PortsConfig
from guided_contract.wire import Hello
from guided_sidecar.grammar.pool.workers import WorkersState
from guided_sidecar.health.probe import GuidedProbe, judge_answer
from guided_sidecar.socket.snapshot import ServiceSnapshot
from support.collectors import eventually

GOOD = {"choices": [{"text": '"guided"', "finish_reason": "stop"}]}


class Engine:
    """Answers completions as told, and keeps the requests."""

    def __init__(self) -> None:
        self.port = unused_port()
        self.status = 200
        self.answer: Any = GOOD
        self.hangs = False
        self.steps = 0
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._stopped = asyncio.Event()
        self.boot = "boot-1"
        self.workers = 1
        self.looks = 0  # at the engine's state, each time that the probe wakes up
        self.key = ""
        app = web.Application()
        app.router.add_post("/v1/completions", self._complete)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        self._stopped.set()
        await self._runner.cleanup()

    async def looked_at(self, times: int = 10) -> None:
        """Wait until the probe has looked some more times; all that it does besides has come to its end."""
        looks = self.looks + times
        await eventually(lambda: self.looks >= looks)

    def snapshot(self) -> ServiceSnapshot:
        self.looks += 1
        hellos = (
            Hello(role="launcher", pid=1, boot=self.boot),
            Hello(role="rank", pid=2, boot=self.boot, rank=0, samples=True),
        )
        return ServiceSnapshot(hellos=hellos if self.boot else (), workers=WorkersState(idle=self.workers))

    def config(self, placement: Literal["Rank", "Scheduler"], run_dir: Path) -> PodConfig:
        return PodConfig(
            name="tiny",
            model="/m",
            tokenizer="/m",
            served_name="tiny-served",
            run_dir=str(run_dir),
            ports=PortsConfig(engine=self.port),
            guided_decoding=GuidedDecodingConfig(placement=placement),
        )

    def probe(
        self,
        *,
        placement: Literal["Rank", "Scheduler"] = "Rank",
        run_dir: Path = Path("/run"),
        api_key: str = "",
    ) -> GuidedProbe:
        return GuidedProbe(
            self.config(placement, run_dir),
            self.snapshot,
            lambda: self.steps,
            api_key=api_key,
            timeout_s=1.0,  # on a busy machine an answer of this process to itself may take a while
            poll_s=0.01,
            delay_s=0.02,
        )

    async def _complete(self, request: web.Request) -> web.Response:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        if self.hangs:
            self.steps += self.steps > 0
            await self._stopped.wait()
        return web.json_response(self.answer, status=self.status)


@contextlib.asynccontextmanager
async def running(probe: GuidedProbe) -> AsyncIterator[GuidedProbe]:
    probe.start()
    try:
        yield probe
    finally:
        await probe.stop()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def probe(engine: Engine) -> AsyncIterator[GuidedProbe]:
    made = engine.probe()
    made.start()
    yield made
    await made.stop()


async def test_it_passes_and_asks_no_more(engine: Engine, probe: GuidedProbe) -> None:
    await eventually(lambda: probe.status.state == "Passed")
    await engine.looked_at()
    (request,) = engine.requests
    assert request["model"] == "tiny-served"
    assert request["temperature"] == 0
    assert request["max_tokens"] <= 32
    jsonschema.Draft202012Validator.check_schema(request["response_format"]["json_schema"]["schema"])
    flags = engine.headers[0]["traceparent"].rpartition("-")[2]
    assert not int(flags, 16) & 1, "its trace is kept by nobody"  # sampled, as W3C has it


async def test_with_placement_rank_an_engine_is_asked_when_there_is_a_grammar_worker(engine: Engine) -> None:
    engine.workers = 0
    async with running(engine.probe()) as probe:
        await engine.looked_at()
        assert (engine.requests, probe.status.state) == ([], "Pending")
    async with running(engine.probe(placement="Scheduler")) as probe:
        await eventually(lambda: probe.status.state == "Passed")


@pytest.mark.parametrize(("key", "state"), [("sesame", "Passed"), ("", "Failed")])
async def test_it_shows_the_key_that_clients_need(engine: Engine, key: str, state: str) -> None:
    engine.key = "sesame"
    probe = engine.probe(api_key=key)
    probe.start()
    await eventually(lambda: probe.status.state == state)
    await probe.stop()


async def test_a_starting_engine_is_no_failure() -> None:
    engine = Engine()
    async with running(engine.probe()) as probe:
        await engine.looked_at()
        assert (probe.status.state, probe.last_failure) == ("Pending", None)
        await engine.start()
        await eventually(lambda: probe.status.state == "Passed")
    await engine.stop()


async def test_a_new_engine_start_is_asked_again(engine: Engine, probe: GuidedProbe) -> None:
    await eventually(lambda: probe.status.state == "Passed")
    engine.boot = "boot-2"
    await eventually(lambda: len(engine.requests) == 2)
    await eventually(lambda: probe.status.state == "Passed")


async def test_an_engine_that_has_gone_has_no_outcome(engine: Engine, probe: GuidedProbe) -> None:
    await eventually(lambda: probe.status.state == "Passed")
    engine.boot = ""
    await eventually(lambda: probe.status.state == "Pending")


async def test_a_pod_that_drains_is_not_asked(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "draining").touch()
    async with running(engine.probe(run_dir=tmp_path)) as probe:
        await engine.looked_at()
        assert (engine.requests, probe.status.state) == ([], "Pending")


async def test_it_tries_until_it_passes(engine: Engine, probe: GuidedProbe) -> None:
    engine.status, engine.answer = 500, {"error": {"code": "sequence_matcher_failed"}}
    await eventually(lambda: probe.status.state == "Failed")
    assert probe.status.message == "guided probe: HTTP 500, code sequence_matcher_failed"
    engine.status, engine.answer = 200, GOOD
    await eventually(lambda: probe.status.state == "Passed")
    assert probe.last_failure is not None
    assert probe.last_failure.code == "guided_probe_failed"
    assert "HTTP 500" in probe.last_failure.message


async def test_an_engine_that_makes_steps_is_busy(engine: Engine, probe: GuidedProbe) -> None:
    engine.hangs, engine.steps = True, 1
    await eventually(lambda: probe.status.state == "Busy")
    engine.hangs = False
    await eventually(lambda: probe.status.state == "Passed")


async def test_an_engine_that_makes_none_has_failed(engine: Engine, probe: GuidedProbe) -> None:
    engine.hangs = True
    await eventually(lambda: probe.status.state == "Failed")
    assert "completed no step" in probe.status.message


@pytest.mark.parametrize(
    ("status", "answer", "state", "message"),
    [
        (200, GOOD, "Passed", ""),
        (200, {"choices": [{"text": "ranked", "finish_reason": "stop"}]}, "Failed", "does not match"),
        (200, {"choices": [{"text": '"other"', "finish_reason": "stop"}]}, "Failed", "does not match"),
        (200, {"choices": [{"text": None, "finish_reason": "stop"}]}, "Failed", "does not match"),
        (200, {"choices": [{"text": '"gui', "finish_reason": "length"}]}, "Failed", "did not finish within"),
        (200, {"choices": []}, "Failed", "not a completion"),
        (200, [], "Failed", "not a completion"),
        (200, "text", "Failed", "not a completion"),
        (404, {}, "Failed", "HTTP 404, no error code"),
        (503, {"error": {"code": "grammar_ranks_not_ready"}}, "Pending", "not admitted yet"),
    ],
)
def test_an_answer_means(status: int, answer: Any, state: str, message: str) -> None:
    verdict = judge_answer(status, json.dumps(answer))
    assert verdict.state == state
    assert message in verdict.message


def test_an_answer_that_is_nested_too_deeply_is_a_failure() -> None:
    deep = "[" * 100_000
    assert judge_answer(500, deep).message == "guided probe: HTTP 500, no error code"
    text = json.dumps({"choices": [{"text": deep, "finish_reason": "stop"}]})
    assert "does not match" in judge_answer(200, text).message
