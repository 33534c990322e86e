"""Each task and thread that must live is made to raise something once, and goes on with its work.

What the owner of all of them does is in test_contract_tasks.py.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

from guided_contract import tasks
from guided_contract.config import PodConfig, PortsConfig
from guided_contract.heartbeat import Heartbeats
from guided_engine.launcher.probes import Probes
from guided_engine.launcher.stall import StallWatch
from guided_engine.pulse import Pulse
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
    monkeypatch.setattr(tasks, "_DELAY_S", 0.01)
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


async def status_of(port: int, path: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status


# --- the sidecar ---


# --- the launcher and the engine's processes ---


@pytest.mark.parametrize("task", ["steps", "health"])
async def test_the_launchers_watches(
    pod: PodConfig, failures: Counter[str], monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    said: list[str] = []
    fails = once(lambda *_: said.append("") or "")

    async def is_good(_probes: Probes) -> bool:
        return bool(fails())

    monkeypatch.setattr(
        *((StallWatch, "verdict", fails) if task == "steps" else (Probes, "_is_good", is_good))
    )
    beats = Heartbeats.create(pod.heartbeats_file)
    probes = Probes(pod, beats)
    await probes.start()
    await until(lambda: said)
    assert await status_of(pod.ports.launcher, "/livez") == 200
    await probes.stop()
    beats.close()
    assert failures[task] == 1


def test_a_heartbeat(pod: PodConfig) -> None:
    beats = Heartbeats.create(pod.heartbeats_file)
    pulse = Pulse(pod.heartbeats_file, 0, once(lambda: 1))
    pulse.start()
    deadline_s = time.monotonic() + 10
    while not beats.read(0).busy:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    pulse.stop()
    beats.close()
