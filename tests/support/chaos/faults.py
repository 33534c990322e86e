"""Strikes grammar workers, and measures how soon one compiles again."""

import asyncio
import collections
import contextlib
import itertools
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal

import httpx

from guided_contract.config import PodConfig
from guided_contract.wire import Prepared
from support.chaos.benign import Load, percentile
from support.chaos.hostile import Attack, Attacker, Kind
from support.pod import Pod
from support.sidecar import Api

Fault = Literal["SIGKILL", "SIGSEGV", "SIGSTOP", "memory", "endless"]
# How many of 20 faults are of each kind. Signals hit an idle worker, or one that compiles for whomever.
MIX: Final[dict[Fault, int]] = {"SIGKILL": 5, "SIGSEGV": 5, "SIGSTOP": 5, "memory": 3, "endless": 2}
_SIGNALS: Final[tuple[Fault, ...]] = ("SIGKILL", "SIGSEGV", "SIGSTOP")
_APART_S: Final = 0.25
# Hostile requests, beside the slow ones: more than the slow lane has places are refused for now, with 503.
_AT_ONCE: Final = 1


class Strikes:
    """All faults of a phase and what they showed.

    Attributes
    ----------
    counts
        Faults by kind.
    ready_s
        From each fault until a grammar that nobody had seen was compiled and on the ranks.
    refusal
        Why such a grammar was refused, if one was.
    attacks
        The hostile requests.
    """

    def __init__(
        self, pod: Pod, client: httpx.AsyncClient, load: Load, seed: int, mix: Mapping[Fault, int] = MIX
    ) -> None:
        self.counts: collections.Counter[Fault] = collections.Counter()
        self.ready_s: list[float] = []
        self.attacks: list[Attack] = []
        self.refusal = ""
        self._sidecar = pod.sidecar
        self._config = pod.config
        self._attacker = Attacker(client, seed)
        self._load = load
        self._random = random.Random(seed)
        self._faults = [kind for kind, share in mix.items() for _ in range(share)]
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, number: int) -> None:
        """Strike so many times, and wait for all that was sent."""
        async with probe(self._config) as ready:
            slow = asyncio.create_task(self._keep_compiling())
            try:
                for _ in range(number):
                    begin = time.monotonic()
                    await self._strike(self._random.choice(self._faults))
                    self.ready_s.append(await ready())
                    self.refusal = ready.refusal
                    # A second hit within one compile spends its second attempt: the promise is about one.
                    await self._load.admitted()
                    await asyncio.sleep(max(0.0, begin + _APART_S - time.monotonic()))
            finally:
                slow.cancel()
                await asyncio.gather(slow, return_exceptions=True)
        await asyncio.gather(*self._under_way)

    @property
    def ready_p99_s(self) -> float:
        return percentile(self.ready_s, 99)

    async def _strike(self, fault: Fault) -> None:
        if fault in ("memory", "endless"):
            if not self._places.locked():
                self.counts[fault] += 1
                await self._places.acquire()
                self._begin(fault)
                return
            fault = self._random.choice(_SIGNALS)
        self.counts[fault] += 1
        workers = sorted(self._sidecar.workers())
        if workers:
            with contextlib.suppress(ProcessLookupError):  # it has just been replaced
                os.kill(self._random.choice(workers), signal.Signals[fault])

    def _begin(self, kind: Kind) -> None:
        async def attack() -> None:
            try:
                self.attacks.append(await self._attacker.attack(kind))
            finally:
                self._places.release()

        task = asyncio.create_task(attack())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _keep_compiling(self) -> None:
        """Have a grammar compile at all times, so that signals find workers in the middle of it."""
        while True:
            self.attacks.append(await self._attacker.attack("slow"))


_numbers = itertools.count()


@contextlib.asynccontextmanager
async def probe(config: PodConfig) -> AsyncIterator["Ready"]:
    """Connect as an API server does; what this yields prepares an unseen grammar and times it."""
    async with Api.connected(config) as api:
        yield Ready(api)


class Ready:
    """Asks for a grammar that nobody has seen."""

    def __init__(self, api: Api) -> None:
        self.refusal = ""
        self._api = api

    async def __call__(self) -> float:
        """Return the seconds until it was on every rank; infinite if refused, for what `refusal` says."""
        begin = time.monotonic()
        number, answer = self._api.begin("choice", f'["probe {os.getpid()} {next(_numbers)}"]')
        said = await answer
        self._api.release(number)
        if isinstance(said, Prepared):
            return time.monotonic() - begin
        self.refusal = f"{said.code}: {said.message}"
        return float("inf")
