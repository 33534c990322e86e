"""Two API servers before one engine: admission in each of them, one sidecar for both."""

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from support import openai
from support.engine import Engine, pod_config, wait_until
from support.routes import CONSTRAINTS, ROUTES, Constraint
from support.sidecar import Sidecar

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

BROKEN = Constraint("json", {"type": "integr"}, "x")
KINDS = list(CONSTRAINTS.values())
REQUESTS = 2 * len(KINDS)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:
        pod = pod_config(Path(folder))
        sidecar = Sidecar.start(pod)
        try:
            engine = Engine.start(pod, ["--api-server-count", "2"])
            try:
                engine.wait_started()
                yield engine
            finally:
                engine.stop()
        finally:
            sidecar.stop()


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
    wait_until(lambda: "guidedmodel_grammar_leases 0.0" in sidecar_metrics(engine))


def servers(engine: Engine) -> list[int]:
    """Return the API servers' processes."""
    found = dict.fromkeys(re.findall(r"\(ApiServer_\d pid=(\d+)\)", engine.process.log.read_text()))
    assert len(found) == 2
    return [int(pid) for pid in found]


def sidecar_metrics(engine: Engine) -> str:
    return httpx.get(f"http://127.0.0.1:{engine.pod.ports.sidecar}/metrics").text
