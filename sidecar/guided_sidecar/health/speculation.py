"""How many of the guessed tokens were right, by the engine's own counters."""

import asyncio
import re
from typing import Final

import aiohttp

from guided_contract.config import PodConfig
from guided_contract.status import SpeculationStatus

PERIOD_S: Final = 15.0  # the operator reads the page every few minutes
_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)
_COUNTER: Final = re.compile(
    rb"^vllm:spec_decode_num_(draft|accepted)_tokens_total(?:\{[^}\n]*\})? ([0-9.e+]+)$", re.MULTILINE
)


class SpeculationWatch:
    """Reads the engine's metrics now and then, where the pod speculates; else does nothing.

    Parameters
    ----------
    period_s
        Time between two readings.
    """

    def __init__(self, config: PodConfig, *, period_s: float = PERIOD_S) -> None:
        self._url = f"http://127.0.0.1:{config.ports.engine}/metrics"
        self._speculates = config.speculative_method is not None
        self._period_s = period_s
        self._task: asyncio.Task[None] | None = None
        self._drafted = 0
        self._accepted = 0

    @property
    def status(self) -> SpeculationStatus | None:
        """What was read last; None where the pod does not speculate."""
        if not self._speculates:
            return None
        return SpeculationStatus(drafted=self._drafted, accepted=self._accepted)

    def start(self) -> None:
        """Begin to read."""
        if self._speculates:
            self._task = asyncio.create_task(self._read_forever(), name="speculation")

    async def stop(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read_forever(self) -> None:
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            while True:
                try:
                    async with session.get(self._url) as response:
                        self._drafted, self._accepted = counted(await response.read())
                except (aiohttp.ClientError, TimeoutError):
                    pass  # it starts, or is busy; what was read last stands
                await asyncio.sleep(self._period_s)


def counted(metrics: bytes) -> tuple[int, int]:
    """Return the guessed and the accepted tokens that a page of metrics counts, of all engines together."""
    sums = {b"draft": 0, b"accepted": 0}
    for kind, number in _COUNTER.findall(metrics):
        sums[kind] += int(float(number))
    return sums[b"draft"], sums[b"accepted"]
