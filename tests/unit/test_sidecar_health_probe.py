"""The guided probe against a server that answers as vLLM does, well or badly."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from guided_contract.config import GuidedDecodingConfig
from guided_contract.wire import Hello
from guided_sidecar.grammar.pool.workers import WorkersState
from guided_sidecar.health.probe import GuidedProbe, judge_answer
from guided_sidecar.socket.snapshot import ServiceSnapshot
from support.collectors import eventually
from support.engine import pod_config

GOOD = {"choices": [{"text": '"guided"', "finish_reason": "stop"}]}


class Engine:
    """Answers completions as told, and keeps the requests."""

    def __init__(self, run_dir: Path) -> None:
        self.pod = pod_config(run_dir)
        self.status, self.steps, self.workers = 200, 0, 1
        self.answer: Any = GOOD
        self.hangs = False
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.boot, self.key = "boot-1", ""
        self.looks = 0  # at the engine's state, each time that the probe wakes up
        self._stopped = asyncio.Event()
        app = web.Application()
        app.router.add_post("/v1/completions", self._complete)
        self._server = TestServer(app, port=self.pod.ports.engine)

    async def start(self) -> None:
        await self._server.start_server()

    async def stop(self) -> None:
        self._stopped.set()
        await self._server.close()

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

    @contextlib.asynccontextmanager
    async def probed(self, placement: Any = "Rank", api_key: str = "") -> AsyncIterator[GuidedProbe]:
        guided = GuidedDecodingConfig(placement=placement)
        pod = msgspec.structs.replace(self.pod, guided_decoding=guided)
        # On a busy machine an answer of this process to itself may take a while.
        times: Any = {"timeout_s": 1.0, "poll_s": 0.01, "delay_s": 0.02}
        probe = GuidedProbe(pod, self.snapshot, lambda: self.steps, api_key=api_key, **times)
        probe.start()
        try:
            yield probe
        finally:
            await probe.stop()

    async def _complete(self, request: web.Request) -> web.Response:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        if self.hangs:
            self.steps += self.steps > 0
            await self._stopped.wait()
        return web.json_response(self.answer, status=self.status)


async def becomes(probe: GuidedProbe, state: str) -> None:
    await eventually(lambda: probe.status.state == state)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    made = Engine(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def probe(engine: Engine) -> AsyncIterator[GuidedProbe]:
    async with engine.probed() as made:
        yield made


async def test_it_passes_and_asks_no_more(engine: Engine, probe: GuidedProbe) -> None:
    await becomes(probe, "Passed")
    await engine.looked_at()
    (request,) = engine.requests
    assert (request["model"], request["temperature"]) == ("tiny", 0)
    assert request["max_tokens"] <= 32
    jsonschema.Draft202012Validator.check_schema(request["response_format"]["json_schema"]["schema"])
    flags = engine.headers[0]["traceparent"].rpartition("-")[2]
    assert not int(flags, 16) & 1, "its trace is kept by nobody"  # sampled, as W3C has it


async def test_with_vllms_own_scheduler_any_answer_will_do(engine: Engine) -> None:
    """Stock vLLM masks no completion of a model that reasons: its pod was never ready."""
    engine.answer = {"choices": [{"text": "Hm, I", "finish_reason": "length"}]}
    async with engine.probed(placement="Scheduler") as probe:
        await becomes(probe, "Passed")


@pytest.mark.parametrize("why", ["no grammar worker", "draining", "starting"])
async def test_an_engine_that_cannot_answer_yet_is_not_asked_and_no_failure(tmp_path: Path, why: str) -> None:
    engine = Engine(tmp_path)
    if why == "no grammar worker":
        engine.workers = 0
    if why == "draining":
        (tmp_path / "draining").touch()
    if why != "starting":
        await engine.start()
    async with engine.probed() as probe:
        await engine.looked_at()
        assert (engine.requests, probe.status.state, probe.last_failure) == ([], "Pending", None)
        if why == "starting":
            await engine.start()
            await becomes(probe, "Passed")
    async with engine.probed("Scheduler") as probe:  # for which no grammar worker counts
        await becomes(probe, "Pending" if why == "draining" else "Passed")
    await engine.stop()


@pytest.mark.parametrize(("key", "state"), [("sesame", "Passed"), ("", "Failed")])
async def test_it_shows_the_key_that_clients_need(engine: Engine, key: str, state: str) -> None:
    engine.key = "sesame"
    async with engine.probed(api_key=key) as probe:
        await becomes(probe, state)


async def test_each_engine_start_is_asked_and_what_has_gone_has_no_outcome(
    engine: Engine, probe: GuidedProbe
) -> None:
    await becomes(probe, "Passed")
    engine.boot = ""
    await becomes(probe, "Pending")
    engine.boot = "boot-2"
    await becomes(probe, "Passed")
    assert len(engine.requests) == 2


async def test_it_tries_until_it_passes(engine: Engine, probe: GuidedProbe) -> None:
    engine.status, engine.answer = 500, {"error": {"code": "sequence_matcher_failed"}}
    await becomes(probe, "Failed")
    assert probe.status.message == "guided probe: HTTP 500, code sequence_matcher_failed"
    engine.status, engine.answer = 200, GOOD
    await becomes(probe, "Passed")
    assert probe.last_failure is not None
    assert probe.last_failure.code == "guided_probe_failed"


@pytest.mark.parametrize(("steps", "state"), [(1, "Busy"), (0, "Failed")])
async def test_an_engine_that_hangs_is_busy_as_long_as_it_makes_steps(
    engine: Engine, probe: GuidedProbe, steps: int, state: str
) -> None:
    engine.hangs, engine.steps = True, steps
    await becomes(probe, state)
    assert ("completed no step" in probe.status.message) == (not steps)
    engine.hangs = False
    await becomes(probe, "Passed")


def choice(text: Any, finish_reason: str = "stop") -> Any:
    return {"choices": [{"text": text, "finish_reason": finish_reason}]}


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("status", "answer", "state", "message"),
    [
        (200, GOOD, "Passed", ""),
        (200, choice("ranked"), "Failed", "does not match"),
        (200, choice('"other"'), "Failed", "does not match"),
        (200, choice(None), "Failed", "does not match"),
        (200, choice(DEEP), "Failed", "does not match"),
        (200, choice('"gui', "length"), "Failed", "did not finish within"),
        (200, {"choices": []}, "Failed", "not a completion"),
        (200, [], "Failed", "not a completion"),
        (200, "text", "Failed", "not a completion"),
        (404, {}, "Failed", "HTTP 404, no error code"),
        (500, DEEP, "Failed", "HTTP 500, no error code"),
        (503, {"error": {"code": "grammar_ranks_not_ready"}}, "Pending", "not admitted yet"),
    ],
    ids=lambda one: str(one)[:50],
)
def test_an_answer_means(status: int, answer: Any, state: str, message: str) -> None:
    verdict = judge_answer(status, answer if answer is DEEP else json.dumps(answer))
    assert verdict.state == state
    assert message in verdict.message
