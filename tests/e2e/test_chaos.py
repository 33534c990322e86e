"""Faults of every kind against a pod's grammar service, under a benign load that none of them may touch.

`make chaos-grammar` alone, for minutes and on four cores: a pod with a short deadline, little memory and a
small tmpfs. What a fault costs one grammar is in tests/contract/test_grammar_service.py.

FAULTS=1000    strikes against grammar workers
KILLS=50       kills of the grammar service
AMBIGUOUS=20   rounds of grammars that take ever longer for the same letter
SEED=0         which worker is struck how
RATE=5         benign requests a second
QUIET=30       seconds of benign load alone, to compare with
"""

import asyncio
import collections
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import grammars
from support.chaos import faults, leftovers, surroundings
from support.chaos.load import TIMEOUT_S, Load, ask, fault, percentile, spread
from support.pod import Pod, sample, start_pod
from support.soak import traffic
from support.soak.requests import Kind
from support.soak.traffic import Outcome

SEED = int(os.environ.get("SEED") or 0)
DEADLINE_S = 6.0
ANSWERED_S = DEADLINE_S + 1  # a hostile request
BACK_S = 1.0  # a service that was killed takes connections again
READY_S = 1.0  # a worker compiles again after a fault, at p99
ALIVE_S = (2.2, 4.5)  # between two kills of the service
HUNG_S = 8
MOST_GROWTH_MIB = 64
LONG_TOKENS = 300
LONG_AT_ONCE = 2

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(0),
    pytest.mark.skipif(os.environ.get("CHAOS") != "full", reason="make chaos-grammar"),
    pytest.mark.usefixtures("quiet_p99_s"),
]


def asked(name: str, usual: int) -> int:
    """Return how many the environment asks for."""
    return int(os.environ.get(name) or usual)


@dataclass
class Chaos:
    """What a test strikes, and what it finds broken: all of it, as a run takes minutes."""

    pod: Pod
    client: httpx.AsyncClient
    load: Load
    broken: list[str] = field(default_factory=list)

    def promise(self, holds: object, what: str) -> None:
        if not holds:
            self.broken.append(what)

    def in_time(self, took_s: float, most_s: float, what: str) -> None:
        self.promise(took_s <= most_s, f"{what} after {took_s:.2f} s")

    def faultless(self, outcomes: list[Outcome]) -> None:
        self.broken += [why for outcome in outcomes if (why := fault(outcome))]

    async def choose(self, option: str) -> Outcome:
        """Ask for one fixed text."""
        return await traffic.send(self.client, ask("Choose", "choice", [option]))

    async def spell(self, text: str) -> Outcome:
        """Ask for one fixed text by a grammar in Lark's form: one that ranks load from a file."""
        lark = f"start: {json.dumps(text)}"
        return await traffic.send(self.client, ask("Spell", "grammar", lark, text))


def is_turned_away(outcome: Outcome) -> bool:
    return outcome.retry_after_s is not None


def say(name: str, value: object) -> None:
    sys.stdout.write(f"  {name:<36}  {value}\n")
    sys.stdout.flush()


@pytest.fixture(scope="module")
def struck() -> Iterator[Pod]:
    compile_ = {"timeout": f"{DEADLINE_S:g}s", "memory": "128Mi", "workers": 4}
    manifest = sample(parallelism={"tensor": 1}, guidedDecoding={"compile": compile_})
    with surroundings.small_tmpfs() as environment:
        pod = start_pod(manifest, env=environment)
        yield pod
        pod.stop()


@contextlib.asynccontextmanager
async def struck_by(
    pod: Pod, excused: Callable[[Outcome], bool] = lambda _outcome: False
) -> AsyncIterator[Chaos]:
    """Yield what a test needs, under the benign load; then nothing may be broken or left behind.

    `excused` are the benign requests that need not be answered whole and right.
    """
    rate = float(os.environ.get("RATE") or 5)
    async with httpx.AsyncClient(base_url=pod.url, timeout=TIMEOUT_S, limits=httpx.Limits()) as client:
        chaos = Chaos(pod, client, Load(client, rate))
        before = await asyncio.to_thread(leftovers.settled, pod)
        containers, supervisor = pod.containers(), pod.sidecar.process.pid
        async with chaos.load:
            yield chaos
        outcomes = chaos.load.outcomes
        chaos.faultless([outcome for outcome in outcomes if not excused(outcome)])
        away = collections.Counter(
            f"{outcome.message} ({outcome.retry_after_s:g} s)"
            for outcome in outcomes
            if outcome.retry_after_s is not None
        )
        say("benign requests", f"{len(outcomes)}; turned away: {dict(away)}")
        say("time to first token", spread(chaos.load.first_tokens_s()))
        chaos.promise(pod.containers() == containers, "a container was restarted")
        chaos.promise(pod.sidecar.process.pid == supervisor, "the supervisor has gone")
        left = await asyncio.to_thread(leftovers.left_behind, pod, before)
        chaos.promise(not left, f"left behind: {'; '.join(left)}")
    assert not chaos.broken, "\n".join(chaos.broken)


@pytest.fixture(scope="module")
def quiet_p99_s(struck: Pod) -> float:
    """The p99 of the benign load's time to the first token without any fault, once all is warm."""

    async def run() -> float:
        async with httpx.AsyncClient(base_url=struck.url, timeout=TIMEOUT_S) as client, Load(client, 3):
            await asyncio.sleep(3)
        await faults.recovered(struck)
        async with struck_by(struck) as chaos:
            await asyncio.sleep(asked("QUIET", 30))
        return percentile(chaos.load.first_tokens_s(), 99)

    return asyncio.run(run())


def test_workers_that_are_struck_cost_no_benign_request(struck: Pod, quiet_p99_s: float) -> None:
    async def run() -> None:
        async with struck_by(struck) as chaos:
            strikes = faults.Strikes(struck, chaos.client, chaos.load, SEED)
            await strikes.run(asked("FAULTS", 1000), faults.EVERY)
            say("faults", dict(strikes.counts))
            say("hostile requests", len(strikes.attacks))
            say("a worker compiles again", spread(strikes.ready_s))
            chaos.broken += [f"no worker was ready after a fault: {why}" for why in strikes.refusals]
            chaos.in_time(percentile(strikes.ready_s, 99), READY_S, "a worker was ready")
            for kind, outcome in strikes.attacks:
                why = faults.wrong_answer(kind, outcome)
                chaos.promise(not why, why)
                until_s = outcome.took_s if outcome.first_s is None else outcome.first_s
                chaos.in_time(until_s, ANSWERED_S, f"{kind} was answered")
        say("p99 of the quiet one", f"{percentile(chaos.load.first_tokens_s(), 99) / quiet_p99_s:.2f} times")

    asyncio.run(run())


def test_ambiguous_grammars_hold_up_nobody(struck: Pod) -> None:
    """Upstream's scheduler stands still for minutes on each of them."""
    refused = ("grammar_slow", "grammar_dead_end", "grammar_unsupported")
    fine = {(200, ""), (422, "sequence_slow"), *((400, code) for code in refused)}
    # Workers get what unguided requests leave of two cores, which can be next to nothing.
    fine.add((503, "grammar_service_unavailable"))

    # Another one each time: what was refused once is known.
    hostile = [
        ask(100 * "a", *_of_text(kind, spec.replace("z", f"z{number}")))
        for number in range(asked("AMBIGUOUS", 20))
        for kind, spec in grammars.AMBIGUOUS.values()
    ]
    harmless = [ask(100 * "a", "regex", f"(a{{0,100}}){number}z") for number, _ in enumerate(hostile)]

    async def run() -> None:
        async with struck_by(struck) as chaos:
            async with _unguided(chaos, "alone"):
                await asyncio.sleep(asked("QUIET", 30))
            async with _unguided(chaos, "beside harmless new grammars"):
                for request in harmless:
                    await traffic.send(chaos.client, request)
            async with _unguided(chaos, "beside ambiguous grammars"):
                for request in hostile:
                    answer = await traffic.send(chaos.client, request)
                    said = answer.status, answer.code
                    chaos.promise(said in fine, f"{request.constraint!s:.40}: {said}, {answer.message}")

    asyncio.run(run())


def _of_text(kind: Kind, spec: str) -> tuple[Kind, Any]:
    return kind, json.loads(spec) if kind == "json" else spec


@contextlib.asynccontextmanager
async def _unguided(chaos: Chaos, beside: str) -> AsyncIterator[None]:
    """Send unguided requests one after the other, and say how long they took."""
    took_s: list[float] = []

    async def send() -> None:
        while True:
            story = ask("Tell", "none", None, "(?s).+", max_tokens=100, ignore_eos=True)
            took_s.append((await traffic.send(chaos.client, story)).took_s)

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    say(f"unguided, {beside}", f"{len(took_s)}: {spread(took_s) if took_s else 'none'}")


def test_a_service_that_is_killed_is_soon_back_and_ends_no_long_request(struck: Pod) -> None:
    chance, back_s = random.Random(SEED), []

    async def run() -> None:
        async with struck_by(struck, is_turned_away) as chaos:
            async with _long_requests(chaos):
                for _ in range(asked("KILLS", 50)):
                    await asyncio.sleep(chance.uniform(*ALIVE_S))
                    pid = struck.sidecar.service_pid()
                    assert pid is not None
                    begin = time.monotonic()
                    os.kill(pid, signal.SIGKILL)
                    await faults.reach(struck)
                    back_s.append(time.monotonic() - begin)
                await faults.recovered(struck)
            say("the service takes connections again", spread(back_s))
            chaos.in_time(max(back_s), BACK_S, "the service was back")

    asyncio.run(run())


def test_a_spent_budget_turns_away_what_is_new_and_comes_back(struck: Pod) -> None:
    new = {"grammar_compile_crashed", "grammar_service_exhausted"}  # lost two workers, or found none

    async def run() -> None:
        async with struck_by(struck, lambda outcome: outcome.code in new) as chaos:
            unseen = lambda: chaos.choose(f"unseen {time.monotonic()}")  # noqa: E731
            await chaos.choose("known")
            killing = asyncio.create_task(faults.kill_workers(struck))
            async with asyncio.timeout(60):
                while (refused := await unseen()).code != "grammar_service_exhausted":
                    pass
            killing.cancel()
            began = time.monotonic()
            most_s = 31
            chaos.promise(0 < (refused.retry_after_s or 0) <= most_s, f"told {refused.retry_after_s} s")
            chaos.faultless([await chaos.choose("known")])
            await faults.recovered(struck)
            chaos.faultless([await unseen()])
            say("recovered after", f"{time.monotonic() - began:.1f} s")

    asyncio.run(run())


def test_surroundings_may_go_away(struck: Pod) -> None:
    """Tmpfs, connections and collector, one after the other."""

    async def run() -> None:
        async with struck_by(struck, is_turned_away) as chaos:
            if surroundings.is_small(struck.config.run_dir):
                await _without_tmpfs(chaos)
            else:
                say("tmpfs full", "not shown: it is no file system of its own")
            await _without_connections(chaos)
            before = surroundings.resident_bytes(struck)
            os.kill(struck.child.pid, signal.SIGSTOP)  # `guidedmodel run` collects the traces itself
            try:
                await asyncio.sleep(HUNG_S)
            finally:
                os.kill(struck.child.pid, signal.SIGCONT)
            grown = (surroundings.resident_bytes(struck) - before) >> 20
            chaos.promise(grown < MOST_GROWTH_MIB, f"grew by {grown} MiB without its collector")

    asyncio.run(run())


async def _without_tmpfs(chaos: Chaos) -> None:
    await chaos.spell("known")
    with surroundings.full(Path(chaos.pod.config.run_dir)):
        unseen = await chaos.spell("no tmpfs")
        chaos.faultless([await chaos.spell("known")])
    chaos.faultless([unseen])


async def _without_connections(chaos: Chaos) -> None:
    async with _long_requests(chaos):
        await asyncio.sleep(0.5)
        cut = await asyncio.to_thread(surroundings.cut_connections, chaos.pod)
        after = await chaos.choose("after the cut")
    say("connections cut", f"{cut}; the next new grammar took {after.took_s:.2f} s")
    chaos.promise(cut is None or cut > 1, "there was nothing to cut")
    chaos.faultless([after])


@contextlib.asynccontextmanager
async def _long_requests(chaos: Chaos) -> AsyncIterator[None]:
    """Keep long guided requests running, all of which must have all of their tokens."""
    stop = asyncio.Event()
    long = ask("x", "regex", "[a-z ]+", min_tokens=LONG_TOKENS, max_tokens=LONG_TOKENS)

    async def run() -> None:
        while not stop.is_set():
            one = await traffic.send(chaos.client, long)
            tokens = [len(choice.tokens) for choice in one.choices]
            is_whole = one.is_answered and tokens == [LONG_TOKENS]
            chaos.promise(is_whole or is_turned_away(one), f"long: {one.code} {tokens}")

    running = [asyncio.create_task(run()) for _ in range(LONG_AT_ONCE)]
    yield
    stop.set()
    await asyncio.gather(*running)
