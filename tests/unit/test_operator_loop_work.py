"""Workers: many keys that are due at once leave everything else its turn."""

import asyncio
import itertools
import time
from typing import Any, Final

from guided_operator.kube.queue import Key, WorkQueue
from guided_operator.reconcile.loop import Workers, work_together
from guided_operator.telemetry.metrics import OperatorMetrics

_KEYS: Final = 200
_WORKERS: Final = 4


class Idle:
    """Stands for a reconciler that finds nothing to do: a pass that waits for nobody."""

    def __init__(self) -> None:
        self.passes = 0

    async def reconcile(self, _: Key) -> None:
        self.passes += 1


async def test_passes_that_wait_for_nobody_let_the_lease_be_renewed_between_them() -> None:
    reconciler: Any = Idle()
    queue = WorkQueue(time.monotonic)
    for number in range(_KEYS):
        queue.add(Key("ns", str(number)))
    working = asyncio.create_task(work_together(Workers(queue, reconciler, OperatorMetrics()), _WORKERS))
    done = [0]
    async with asyncio.timeout(10):
        while done[-1] < _KEYS:
            await asyncio.sleep(0)  # as whoever else runs, the Lease's renewal among them
            done.append(reconciler.passes)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert max(after - before for before, after in itertools.pairwise(done)) <= _WORKERS
