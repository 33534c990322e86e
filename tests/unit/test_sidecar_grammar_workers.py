"""Who waits for a grammar worker gets one that is given back, whoever else went away at that moment."""

import asyncio
from pathlib import Path
from typing import Any

from guided_contract.config import PodConfig, RestartConfig
from guided_sidecar.grammar.budget import RestartBudget
from guided_sidecar.grammar.workers import Workers
from guided_sidecar.settings import Settings
from guided_sidecar.telemetry.incidents import WorkerRestarts


class Alive:
    """As much of a worker as matters while it waits."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()


async def test_a_worker_given_back_reaches_the_next_when_the_first_has_just_gone(tmp_path: Path) -> None:
    """Python 3.11's Condition hands a wake-up to one task, and loses it where that one is cancelled."""
    pod = PodConfig(name="a", model="a", tokenizer="a", served_name="a", run_dir=str(tmp_path))
    budget = RestartBudget(RestartConfig())
    unused: Any = None
    workers = Workers(Settings(pod=pod), budget, WorkerRestarts(unused), wanted=lambda: 0)
    worker: Any = Alive()
    first, second = asyncio.create_task(workers.take()), asyncio.create_task(workers.take())
    await asyncio.sleep(0)
    await workers.put_back(worker)
    first.cancel()
    assert await asyncio.wait_for(second, 5) is worker
    assert first.cancelled()
