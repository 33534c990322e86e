"""Who waits for a grammar worker gets one that is given back, whoever else went away at that moment."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from guided_contract.config import PodConfig
from guided_contract.errors import GuidedError
from guided_sidecar.grammar.pool.pool import Pool, Progress
from guided_sidecar.grammar.pool.workers import IDLE_DEATH, Workers
from guided_sidecar.grammar.worker_errors import WorkerDiedError
from guided_sidecar.grammar.worker_messages import Done, Job
from guided_sidecar.settings import Settings
from support.played import settled


class Alive:
    """As much of a worker as matters while it waits."""

    pid = 1

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def kill(self) -> None:
        self.gone.set()

    def close(self) -> None:
        assert self.gone.is_set()


def made(folder: Path) -> Workers:
    """Return workers that make none."""
    pod = PodConfig(name="a", model="a", tokenizer="a", served_name="a", run_dir=str(folder))
    return Workers(Settings(pod=pod), number=1)


async def test_a_worker_that_dies_on_its_way_back_counts_as_one_that_died_idle(tmp_path: Path) -> None:
    workers = made(tmp_path)
    template: Any = SimpleNamespace(is_gone=False)
    workers._template = template
    worker: Any = Alive()
    worker.gone.set()
    await workers.put_back(worker)
    assert (workers.state.idle, workers.state.restarts) == (0, {"idle": 1})
    assert workers.state.last_failure is not None
    assert workers.state.last_failure.message == IDLE_DEATH


async def test_the_wait_doubles_until_a_worker_has_done_a_job(tmp_path: Path) -> None:
    workers = made(tmp_path)
    template: Any = SimpleNamespace(is_gone=False)
    workers._template = template
    dead: Any = Alive()
    dead.gone.set()
    waits = [workers._delay_s()]
    for _ in range(11):
        await workers._add(dead)
        waits.append(workers._delay_s())
    assert waits == [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    assert workers.are_exhausted
    with pytest.raises(GuidedError) as refused:
        await workers.take()
    assert (refused.value.code, refused.value.retry_after_s) == ("grammar_service_exhausted", 30)

    worker: Any = Alive()
    await workers._add(worker)
    assert not workers.are_exhausted
    await workers.put_back(await workers.take())
    assert workers._delay_s() == 0


async def test_a_template_that_is_killed_is_no_crash_of_the_grammars_that_its_workers_had(
    tmp_path: Path,
) -> None:
    workers, progress = made(tmp_path), Progress()
    done = Done(backend="guidance", spec="a")

    async def dies(*_: object) -> None:
        template.is_gone = True
        raise WorkerDiedError("")

    async def answers(*_: object) -> Done:
        return done

    job = Job(key="a", kind="regex", spec="a", backends=["guidance"], timeout_s=60, memory_bytes=0)
    compiled = asyncio.create_task(Pool(workers).compile(job, progress))
    for run in (dies, dies, answers):
        workers._template = template = cast("Any", SimpleNamespace(is_gone=False))
        worker: Any = Alive()
        worker.run = run
        await workers._add(worker)
        await settled()
    assert await compiled is done
    assert (progress.deaths, workers.state.restarts) == (0, {"template": 2})
    assert workers.state.last_failure is None


async def test_a_grammar_that_crashes_two_workers_is_refused_and_counts_against_nobody(
    tmp_path: Path,
) -> None:
    """Five such schemas once took the grammar service from everybody for minutes."""
    workers, progress = made(tmp_path), Progress()
    workers._template = cast("Any", SimpleNamespace(is_gone=False))

    async def dies(*_: object) -> None:
        raise WorkerDiedError("")

    job = Job(key="a", kind="regex", spec="a", backends=["guidance"], timeout_s=60, memory_bytes=0)
    compiled = asyncio.create_task(Pool(workers).compile(job, progress))
    for _ in range(2):
        worker: Any = Alive()
        worker.run = dies
        await workers._add(worker)
        await settled()
    with pytest.raises(GuidedError) as refused:
        await compiled
    assert refused.value.code == "grammar_compile_crashed"
    assert workers.state.restarts == {"crashed": 2}
    assert workers._delay_s() == 0


async def test_a_worker_given_back_reaches_the_next_when_the_first_has_just_gone(tmp_path: Path) -> None:
    """Python 3.11's Condition hands a wake-up to one task, and loses it where that one is cancelled."""
    workers = made(tmp_path)
    worker: Any = Alive()
    first, second = asyncio.create_task(workers.take()), asyncio.create_task(workers.take())
    await asyncio.sleep(0)
    await workers.put_back(worker)
    first.cancel()
    assert await asyncio.wait_for(second, 5) is worker
    assert first.cancelled()
