"""Strikes grammar workers, and measures how soon one compiles again."""

import asyncio
import collections
import contextlib
import itertools
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import httpx

from guided_contract.config import PodConfig
from guided_contract.wire import Hello, Prepared, Welcome
from support import grammars
from support.chaos.load import Load, ask
from support.pod import Pod
from support.sidecar import Api, Client
from support.soak import traffic
from support.soak.requests import Request
from support.soak.traffic import Outcome

# How many of 20 faults are of each kind. Signals hit an idle worker, or one that compiles for whomever. None
# stops a worker: what a worker hangs in is taken to be its grammar's fault ("endless").
SIGNALS: Final = {"SIGKILL": 8, "SIGSEGV": 7}
EVERY: Final = {**SIGNALS, "memory": 3, "endless": 2}
_APART_S: Final = 0.25
_numbers = itertools.count()  # of grammars that nobody has seen
# The answers that a request may get that harms its worker, beside the reason that its worker was hit too late
# for another to show what is wrong with it.
_ANSWERS: Final = {
    "endless": {(400, "grammar_compile_timeout"), (400, "grammar_compile_crashed")},
    "memory": {
        (400, "grammar_compile_memory"),
        (400, "grammar_compile_crashed"),
        (400, "grammar_compile_timeout"),
    },
    # A worker that a signal hits is retried; a second hit is told as what it was. Where two ranks have the
    # only two cores, its replacement, which is nice, may have too little CPU.
    "slow": {(200, ""), (400, "grammar_compile_crashed"), (400, "grammar_compile_timeout")},
}
_NOT_ITS_FAULT: Final = "a grammar worker crashed; its replacement could not finish"


class Strikes:
    """All faults of a test and what they showed.

    Attributes
    ----------
    counts
        Faults by kind.
    ready_s
        From each fault until a grammar that nobody had seen was compiled and on the ranks.
    refusals
        Why such grammars were refused instead.
    attacks
        The hostile requests, each with its kind.
    """

    def __init__(self, pod: Pod, client: httpx.AsyncClient, load: Load, seed: int) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.ready_s: list[float] = []
        self.refusals: list[str] = []
        self.attacks: list[tuple[str, Outcome]] = []
        self._sidecar = pod.sidecar
        self._config = pod.config
        self._client = client
        self._load = load
        self._random = random.Random(seed)
        self._numbers = itertools.count(seed * 1_000_000)
        self._under_way: asyncio.Task[None] | None = None

    async def run(self, number: int, mix: dict[str, int]) -> None:
        """Strike so many times, and wait for all that was sent."""
        async with probe(self._config) as ready:
            slow = asyncio.create_task(self._keep_compiling())
            try:
                for _ in range(number):
                    begin = time.monotonic()
                    await self._strike(self._random.choices(list(mix), list(mix.values()))[0])
                    took_s, refusal = await ready()
                    self.ready_s.append(took_s)
                    self.refusals += [refusal] if refusal else []
                    # A second hit within one compile spends its second attempt: the promise is about one.
                    await self._load.admitted()
                    await asyncio.sleep(max(0.0, begin + _APART_S - time.monotonic()))
            finally:
                slow.cancel()
                await asyncio.gather(slow, return_exceptions=True)
        if self._under_way is not None:
            await self._under_way

    async def _strike(self, fault: str) -> None:
        if fault not in SIGNALS:
            # One at a time, beside the slow ones: the workers that are left are for the benign requests.
            if self._under_way is None or self._under_way.done():
                self.counts[fault] += 1
                self._under_way = asyncio.create_task(self._attack(fault))
                return
            fault = self._random.choice(list(SIGNALS))
        self.counts[fault] += 1
        if workers := sorted(self._sidecar.workers()):
            with contextlib.suppress(ProcessLookupError):  # it has just been replaced
                os.kill(self._random.choice(workers), signal.Signals[fault])

    async def _keep_compiling(self) -> None:
        """Have a grammar compile at all times, so that signals find workers in the middle of it."""
        while True:
            await self._attack("slow")

    async def _attack(self, kind: str) -> None:
        request = _hostile(kind, next(self._numbers))
        self.attacks.append((kind, await traffic.send(self._client, request)))


def _hostile(kind: str, number: int) -> Request:
    """Return a request with a grammar of its own, so that it is not refused unseen."""
    if kind == "endless":
        spec = grammars.endless_regex(number)
    else:
        spec = f"{number}{grammars.hungry_regex() if kind == 'memory' else grammars.slow_regex(60)}"
    # llguidance takes the regexes that keep xgrammar busy.
    return ask("x", "regex", spec, max_tokens=4, vllm_xargs={"guided_backend": "xgrammar"})


def wrong_answer(kind: str, outcome: Outcome) -> str:
    """Say what is wrong with the answer to a hostile request; "" where nothing is."""
    late = outcome.retry_after_s is not None and outcome.message.startswith(_NOT_ITS_FAULT)
    if late or (outcome.status, outcome.code) in _ANSWERS[kind]:
        return ""
    return f"{kind}: {outcome.status} {outcome.code} {outcome.message}"


@contextlib.asynccontextmanager
async def probe(config: PodConfig) -> AsyncIterator[Callable[[], Awaitable[tuple[float, str]]]]:
    """Yield what prepares an unseen grammar, as an API server does.

    It returns the seconds until that was on every rank or refused, and why it was; "" where it was not.
    """
    async with Api.connected(config) as api:

        async def ready() -> tuple[float, str]:
            begin = time.monotonic()
            number, answer = api.begin("choice", f'["probe {os.getpid()} {next(_numbers)}"]')
            said = await answer
            api.release(number)
            refusal = "" if isinstance(said, Prepared) else f"{said.code}: {said.message}"
            return time.monotonic() - begin, refusal

        yield ready


async def kill_workers(pod: Pod) -> None:
    """Kill every worker as it comes, until cancelled."""
    sidecar = pod.sidecar  # to find it takes a look at every process
    while True:
        for pid in sidecar.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.01)


async def reach(pod: Pod) -> None:
    """Wait until the service takes a connection and greets."""
    while True:
        client = await Client.reach(pod.config)
        try:
            client.send(Hello(role="core", pid=os.getpid(), boot="chaos"))
            if await client.receive() == Welcome():
                return
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.01)  # the socket of the one that was killed
        finally:
            client.close()


async def recovered(pod: Pod) -> None:
    """Wait until grammars are compiled again."""
    async with asyncio.timeout(60), probe(pod.config) as ready:
        while (await ready())[1]:
            pass
