"""Drawn traffic on a pod whose grammar workers, matchers, or grammar service are killed all the while.

`make chaos-grammar` alone, for minutes. What one kill costs: tests/contract/test_grammar_workers.py.

FAULTS=1000    kills of grammar workers, and of a rank's matchers
KILLS=50       kills of the grammar service
TENSOR=1       ranks; of two matchers' processes one dies, or both
SEED=0         which worker, and what is drawn
"""

import itertools
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from guided_engine.matchers.template import NAME
from support import openai
from support.pod import start_pod
from support.soak import session
from support.soak.requests import drawn
from support.soak.session import Session

SEED = int(os.environ.get("SEED") or 0)
BATCH = 50

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(0),
    pytest.mark.skipif(os.environ.get("CHAOS") != "full", reason="make chaos-grammar"),
]


@pytest.fixture(scope="module")
def soaked() -> Iterator[Session]:
    pod = start_pod(session.manifest(tensor=int(os.environ.get("TENSOR") or 1)))
    yield Session(pod)
    pod.stop()


def kill_worker(soaked: Session, chance: random.Random) -> None:
    os.kill(chance.choice(sorted(soaked.pod.sidecar.workers())), signal.SIGKILL)


def kill_matchers(soaked: Session, chance: random.Random) -> None:
    named = [pid for pid in soaked.pod.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == NAME]
    for pid in chance.sample(named, chance.randint(1, len(named)) if named else 0):
        os.kill(pid, signal.SIGKILL)


def kill_service(soaked: Session, _chance: random.Random) -> None:
    service = soaked.pod.sidecar.service_pid()
    assert service is not None
    os.kill(service, signal.SIGKILL)
    soaked.pod.wait(lambda: soaked.pod.sidecar.service_pid() not in {None, service})


@pytest.mark.parametrize(
    ("kill", "times"),
    [
        (kill_worker, int(os.environ.get("FAULTS") or 1000)),
        (kill_matchers, int(os.environ.get("FAULTS") or 1000)),
        (kill_service, int(os.environ.get("KILLS") or 50)),
    ],
)
def test_whoever_dies_costs_no_request_and_is_soon_back(
    soaked: Session, kill: Callable[[Session, random.Random], None], times: int
) -> None:
    pod, chance, ended = soaked.pod, random.Random(SEED), threading.Event()
    containers, processes = pod.containers(), len(pod.processes())

    def send() -> None:
        for seed in itertools.takewhile(lambda _: not ended.is_set(), itertools.count(SEED)):
            soaked.run(seed, drawn(seed, BATCH))

    def compiles(number: int) -> bool:
        fresh = [f"{kill.__name__} {number}", "no"]
        return openai.guided(pod.url, "x", "choice", fresh).status_code == 200

    with ThreadPoolExecutor(1) as pool:
        traffic = pool.submit(send)
        try:
            for number in range(times):
                kill(soaked, chance)
                # A second kill within one compile refuses its grammar: the promise is about one.
                pod.wait(lambda number=number: compiles(number))
        finally:
            ended.set()
        traffic.result()
    assert not soaked.faults, "\n".join(soaked.faults)
    assert pod.containers() == containers
    pod.wait(lambda: len(pod.processes()) <= processes)
