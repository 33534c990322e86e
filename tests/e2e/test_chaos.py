"""Faults of every kind against a pod's grammar service, under a benign load that none of them may touch.

`make chaos-grammar` alone, for minutes and on four cores: a pod with a short deadline and little memory. What
a fault costs one grammar is in tests/contract/test_grammar_service.py.

FAULTS=1000    strikes against grammar workers
KILLS=50       kills of the grammar service
SEED=0         which worker is struck how
RATE=5         benign requests a second
"""

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from support import chaos
from support.chaos import Belongings, Load, ask, fault, spread
from support.pod import Pod, sample, start_pod
from support.soak import traffic
from support.soak.traffic import Outcome

SEED = int(os.environ.get("SEED") or 0)
TIMEOUT_S = 60.0
BACK_S = 1.0  # a service that was killed takes connections again
READY_S = 1.0  # a worker compiles again after a fault, at p99
ALIVE_S = (2.2, 4.5)  # between two kills of the service
LONG_TOKENS = 300
LONG_AT_ONCE = 2

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(0),
    pytest.mark.skipif(os.environ.get("CHAOS") != "full", reason="make chaos-grammar"),
]


def asked(name: str, usual: int) -> int:
    """Return how many the environment asks for."""
    return int(os.environ.get(name) or usual)


def say(name: str, value: object) -> None:
    sys.stdout.write(f"  {name:<36}  {value}\n")
    sys.stdout.flush()


@dataclass
class Struck:
    """What a test strikes, and what it finds broken: all of it, as a run takes minutes."""

    pod: Pod
    client: httpx.AsyncClient
    load: Load
    broken: list[str] = field(default_factory=list)

    def promise(self, holds: object, what: str) -> None:
        if not holds:
            self.broken.append(what)


def is_turned_away(outcome: Outcome) -> bool:
    return outcome.retry_after_s is not None


@pytest.fixture(scope="module")
def pod() -> Iterator[Pod]:
    compile_ = {"timeout": "6s", "memory": "128Mi", "workers": 4}
    started = start_pod(sample(parallelism={"tensor": 1}, guidedDecoding={"compile": compile_}))
    yield started
    started.stop()


@contextlib.asynccontextmanager
async def struck_by(
    pod: Pod, excused: Callable[[Outcome], bool] = lambda _outcome: False
) -> AsyncIterator[Struck]:
    """Yield what a test needs, under the benign load; then nothing may be broken or left behind.

    `excused` are the benign requests that need not be answered whole and right.
    """
    async with httpx.AsyncClient(base_url=pod.url, timeout=TIMEOUT_S, limits=httpx.Limits()) as client:
        async with Load(client, 3):
            await asyncio.sleep(3)
        await chaos.recovered(pod)
        struck = Struck(pod, client, Load(client, asked("RATE", 5)))
        before = await asyncio.to_thread(Belongings, pod)
        async with struck.load:
            yield struck
        outcomes = struck.load.outcomes
        struck.broken += [why for outcome in outcomes if not excused(outcome) and (why := fault(outcome))]
        say("benign requests", f"{len(outcomes)}; turned away: {chaos.turned_away(outcomes)}")
        say("time to first token", spread([one.first_s for one in outcomes if one.first_s is not None]))
        left = await asyncio.to_thread(chaos.left_behind, pod, before)
        struck.promise(not left, f"left behind: {'; '.join(left)}")
        struck.promise(Belongings(pod).containers == before.containers, "a container was restarted")
    assert not struck.broken, "\n".join(struck.broken)


def test_workers_that_are_struck_cost_no_benign_request(pod: Pod) -> None:
    async def run() -> None:
        async with struck_by(pod) as struck:
            faults = asked("FAULTS", 1000)
            ready_s, wrong = await chaos.strike(pod, struck.client, struck.load, SEED, faults)
            struck.broken += wrong
            say("a worker compiles again", spread(ready_s))
            struck.promise(chaos.percentile(ready_s, 99) <= READY_S, "a worker was ready too late")

    asyncio.run(run())


def test_a_service_that_is_killed_is_soon_back_and_ends_no_long_request(pod: Pod) -> None:
    chance, back_s = random.Random(SEED), []

    async def run() -> None:
        async with struck_by(pod, is_turned_away) as struck:
            async with _long_requests(struck):
                for _ in range(asked("KILLS", 50)):
                    await asyncio.sleep(chance.uniform(*ALIVE_S))
                    back_s.append(await chaos.kill_service(pod))
                await chaos.recovered(pod)
            say("the service takes connections again", spread(back_s))
            struck.promise(max(back_s) <= BACK_S, "the service was back too late")

    asyncio.run(run())


@contextlib.asynccontextmanager
async def _long_requests(struck: Struck) -> AsyncIterator[None]:
    """Keep long guided requests running, all of which must have all of their tokens."""
    stop = asyncio.Event()
    long = ask("x", "regex", "[a-z ]+", min_tokens=LONG_TOKENS, max_tokens=LONG_TOKENS)

    async def run() -> None:
        while not stop.is_set():
            one = await traffic.send(struck.client, long)
            tokens = [len(choice.tokens) for choice in one.choices]
            is_whole = one.is_answered and tokens == [LONG_TOKENS]
            struck.promise(is_whole or is_turned_away(one), f"long: {one.code} {tokens}")

    running = [asyncio.create_task(run()) for _ in range(LONG_AT_ONCE)]
    yield
    stop.set()
    await asyncio.gather(*running)
