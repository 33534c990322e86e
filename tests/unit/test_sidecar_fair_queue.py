"""What endless compiles cost others that come meanwhile: the real queue, and compiles that only take time."""

import asyncio
import random
import statistics

import pytest

from guided_sidecar.grammar.pool.fair_queue import FairQueue
from guided_sidecar.settings import Settings
from support.engine import pod_config
from support.played import played

SEED = 1
ENDLESS = 40
QUICK_S = 0.02
SIZE = 100  # of the text of a quick one
FORK_S = 0.015  # a worker is killed and another one made
DEADLINE_S = 10.0


class Traffic:
    def __init__(self, width: int, slow_after_s: float, burst_s: float, size: int) -> None:
        self.waited_s: list[float] = []
        self._chance = random.Random(SEED)
        self._queue = FairQueue(width, slow_after_s)
        self._burst_s = burst_s
        self._size = size  # of an endless one

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
                    await self._compile(1e9, self._size)
            except TimeoutError:
                await asyncio.sleep(FORK_S)

    async def _quick(self) -> None:
        begin_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._compile(QUICK_S, SIZE)
        finally:
            self.waited_s.append(asyncio.get_running_loop().time() - begin_s)

    async def _compile(self, work_s: float, size: int) -> None:
        async with self._queue.slot(size) as slot:
            while True:
                if slot.is_lost:
                    await slot.again()
                lost = asyncio.Event()
                with slot.watched(on_lost=lost.set, used_s=lambda: float("inf")):
                    try:
                        async with asyncio.timeout(work_s):
                            await lost.wait()
                    except TimeoutError:
                        return
                await asyncio.sleep(FORK_S)


@pytest.mark.parametrize("burst_s", [0.0, DEADLINE_S], ids=["all at once", "spread"])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1], ids=["small", "large"])
def test_quick_compiles_are_not_held_up_by_endless_ones(
    width: int, burst_s: float, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """First come first served, with slices of half a second, half of them waited for 9.8 s."""
    settings = Settings(pod=pod_config(tmp_path_factory.mktemp("run")))
    traffic = Traffic(width, settings.slow_after_s, burst_s, size)

    @played
    async def play() -> None:
        await traffic.play(60)

    play()
    assert len(traffic.waited_s) == 600, f"seed {SEED}"
    assert statistics.quantiles(traffic.waited_s, n=100)[98] <= 1.0
    assert size < SIZE or max(traffic.waited_s) <= 1.0
    assert statistics.median(traffic.waited_s) < 5 * QUICK_S
