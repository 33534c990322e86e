"""Two engines with an API server each: admission in both of them, one sidecar for all."""

import contextlib
import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from guided_contract.config import DrainConfig
from support import openai
from support.engine import Engine, pod_config, wait_until
from support.routes import CONSTRAINTS, ROUTES, Constraint
from support.sidecar import Sidecar

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

BROKEN = Constraint("json", {"type": "integr"}, "x")
KINDS = list(CONSTRAINTS.values())
REQUESTS = 2 * len(KINDS)
DRAIN = DrainConfig(timeout_s=60, endpoint_lag_s=1)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gm-"))
        pod = pod_config(Path(folder), drain=DRAIN, data_parallel=2)
        stack.callback(Sidecar.start(pod).stop)
        engine = Engine.start(pod, ["--data-parallel-size", "2"])
        stack.callback(engine.stop)
        engine.wait_started()
        yield engine


@pytest.mark.parametrize("other", [0, 1])
def test_each_admits_and_refuses(engine: Engine, other: int) -> None:
    """With one of them stopped, which takes no connection, the other answers everything."""

    def ask(number: int) -> httpx.Response:
        asked = BROKEN if number % 2 else KINDS[number // 2 % len(KINDS)]
        return ROUTES["completions"].ask(engine.url, asked, stream=number % 4 == 0)

    stopped = servers(engine)[other]
    os.kill(stopped, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(8) as pool:
            responses = list(pool.map(ask, range(REQUESTS)))
    finally:
        os.kill(stopped, signal.SIGCONT)
    for number, response in enumerate(responses):
        if number % 2:
            assert openai.error_code(response) == (400, "grammar_invalid")
        else:
            (text,) = ROUTES["completions"].answers(response)
            KINDS[number // 2 % len(KINDS)].check(text)
    metrics = f"http://127.0.0.1:{engine.pod.ports.sidecar}/metrics"
    wait_until(lambda: "guidedmodel_grammar_leases 0.0" in httpx.get(metrics).text)


def test_told_to_stop_they_lose_no_request(engine: Engine) -> None:
    """Clients on kept connections, whole answers and streams, until both servers have gone."""
    stopping, failures, answered = threading.Event(), [], []

    def client(number: int) -> None:
        with httpx.Client(base_url=engine.url, timeout=60) as kept:
            told = False
            while not told:  # a kept connection leads here for ever: until its server says good-bye
                body = {"model": "tiny", "prompt": "x", "max_tokens": 20 + number, "ignore_eos": True}
                try:
                    answer = kept.post("/v1/completions", json=body | {"stream": number % 2 == 0})
                except httpx.HTTPError as error:
                    failures.append(repr(error))
                    return
                answered.append(stopping.is_set())
                if answer.status_code != 200:
                    failures.append(answer.text)
                told = answer.headers.get("connection") == "close"

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(client, number) for number in range(8)]
        wait_until(lambda: len(answered) > 16)
        stopping.set()
        os.kill(engine.process.pid, signal.SIGTERM)
        for one in clients:
            one.result(60)
    assert failures == []
    assert sum(answered) >= 8, "each was answered once more, and told"
    wait_until(lambda: not engine.process.is_running(), 40)
    assert "drained after" in engine.process.log.read_text()


def servers(engine: Engine) -> list[int]:
    """Return the API servers' processes, once both have said a word: the engine counts as started by one."""

    def found() -> list[str]:
        log = engine.process.log.read_text()
        return list(dict.fromkeys(re.findall(r"\(ApiServer_\d pid=(\d+)\)", log)))

    wait_until(lambda: len(found()) == 2, 120)
    return [int(pid) for pid in found()]
