"""What endless compiles cost others that come meanwhile: the real queue, and compiles that only take time."""

import asyncio
import random
import statistics
from pathlib import Path

import pytest

from guided_sidecar.grammar.pool.fair_queue import FairQueue
from guided_sidecar.settings import Settings
from support.engine import pod_config
from support.played import played

SEED = 1
ENDLESS = 40
QUICK_S = 0.02
CROWDED_S = 0.12  # what a quick one takes where others use the CPUs
FORK_S = 0.015  # a worker is killed and another one made
DEADLINE_S = 10.0


class Traffic:
    def __init__(self, width: int, slow_after_s: float, burst_s: float = 0.0) -> None:
        self.waited_s: list[float] = []
        self._chance = random.Random(SEED)
        self._queue = FairQueue(width, slow_after_s)
        self._burst_s = burst_s

    async def play(self, seconds: float) -> None:
        """Let clients that never stop asking for endless grammars meet one that asks for quick ones."""
        endless = [asyncio.create_task(self._endless()) for _ in range(ENDLESS)]
        quick = []
        for _ in range(int(seconds / 0.1)):
            await asyncio.sleep(self._chance.uniform(0.05, 0.15))
            quick.append(asyncio.create_task(self._quick()))
        await asyncio.gather(*quick)
        for task in endless:
            task.cancel()
        await asyncio.wait(endless)

    async def _endless(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, self._burst_s))
        while True:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await self._compile(1e9)
            except TimeoutError:
                await asyncio.sleep(FORK_S)

    async def play_good(self, clients: int, count: int) -> None:
        """Let each client ask for a quick one after the other, until there are no more of them."""
        left = iter(range(count))

        async def client() -> None:
            for _ in left:
                await self._quick(CROWDED_S, used_s=QUICK_S)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def _quick(self, work_s: float = QUICK_S, used_s: float = QUICK_S) -> None:
        begin_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._compile(work_s, used_s)
        finally:
            self.waited_s.append(asyncio.get_running_loop().time() - begin_s)

    async def _compile(self, work_s: float, used_s: float = float("inf")) -> None:
        async with self._queue.slot() as slot:
            while True:
                if slot.is_lost:
                    await slot.again()
                lost = asyncio.Event()
                with slot.watched(on_lost=lost.set, used_s=lambda: used_s):
                    try:
                        async with asyncio.timeout(work_s):
                            await lost.wait()
                    except TimeoutError:
                        return
                await asyncio.sleep(FORK_S)


def settings(folder: Path) -> Settings:
    return Settings(pod=pod_config(folder))


@pytest.mark.parametrize("burst_s", [0.0, DEADLINE_S], ids=["all at once", "spread"])
@pytest.mark.parametrize("width", [1, 2])
def test_quick_compiles_are_not_held_up_by_endless_ones(width: int, burst_s: float, tmp_path: Path) -> None:
    """First come first served, with slices of half a second, half of them waited for 9.8 s."""
    traffic = Traffic(width, settings(tmp_path).slow_after_s, burst_s)

    @played
    async def play() -> None:
        await traffic.play(60)

    play()
    assert len(traffic.waited_s) == 600, f"seed {SEED}"
    assert max(traffic.waited_s) <= 5.0
    assert statistics.median(traffic.waited_s) < 5 * QUICK_S


@pytest.mark.parametrize(("clients", "count"), [(24, 100), (40, 40)], ids=["in a loop", "at once"])
def test_a_burst_of_quick_compiles_is_served(clients: int, count: int, tmp_path: Path) -> None:
    """With the newest first, the oldest of those in a loop waited until their deadline."""
    traffic = Traffic(1, settings(tmp_path).slow_after_s)

    @played
    async def play() -> None:
        await traffic.play_good(clients, count)

    play()
    assert len(traffic.waited_s) == count
    assert max(traffic.waited_s) <= 5.0
