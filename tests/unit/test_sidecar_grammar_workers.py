"""Grammar workers: who waits for one, those that die, and what is said of a compile that is late."""

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


@pytest.mark.parametrize(
    ("is_templates", "restarts", "deaths"), [(True, {"template": 2}, 0), (False, {"crashed": 2}, 2)]
)
async def test_a_grammar_that_crashes_two_workers_is_refused_but_not_for_what_befell_their_template(
    tmp_path: Path, is_templates: Any, restarts: dict[str, int], deaths: int
) -> None:
    """It counts against nobody else: five such schemas once took the service from everybody for minutes."""
    workers, progress = made(tmp_path), Progress()
    done = Done(backend="guidance", spec="a")

    async def dies(*_: object) -> None:
        workers._template.is_gone = is_templates  # type: ignore[union-attr]
        raise WorkerDiedError("")

    async def answers(*_: object) -> Done:
        return done

    job = Job(key="a", kind="regex", spec="a", backends=["guidance"], timeout_s=60, memory_bytes=0)
    compiled = asyncio.create_task(Pool(workers).compile(job, progress))
    for run in (dies, dies, answers):
        workers._template = cast("Any", SimpleNamespace(is_gone=False))
        worker: Any = Alive()
        worker.run = run
        await workers._add(worker)
        await settled()
    if is_templates:
        assert await compiled is done
        assert workers.state.last_failure is None
    else:
        with pytest.raises(GuidedError) as refused:
            await compiled
        assert refused.value.code == "grammar_compile_crashed"
        assert workers._delay_s() == 0
    assert (progress.deaths, workers.state.restarts) == (deaths, restarts)


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


LATE = ("grammar_compile_timeout", "the grammar did not compile within 10 s")
CRASHED = ("grammar_service_unavailable", "a grammar worker crashed")
BUSY = ("grammar_service_unavailable", "all grammar workers were busy for 10 s")


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ("", BUSY),
        ("half half", BUSY),
        ("start", BUSY),
        ("half start", BUSY),
        ("start half", LATE),
        ("half start half", LATE),
        ("start half half", LATE),
        ("start half died", CRASHED),
        ("start half died half", CRASHED),
        ("start died start", CRASHED),
        ("start half died start", CRASHED),
        ("start died start half", LATE),
    ],
)
def test_it_is_to_blame_if_the_worker_that_has_it_had_it_for_half_of_the_limit(
    events: str, told: tuple[str, str]
) -> None:
    now_s = 0.0
    progress = Progress(clock=lambda: now_s)
    for event in events.split():
        if event == "start":
            progress.start()
        elif event == "died":
            progress.died(with_template=False)
        else:
            now_s += 5.0
    progress.ended = found = progress.too_late(10.0)
    assert (found.code, found.message.partition(";")[0].partition(" and ")[0]) == told
    assert bool(found.retry_after_s) == (told is not LATE)
    assert progress.deaths == events.count("died")
    now_s += 10.0
    assert progress.too_late(10.0) is found, "how long its worker takes to end changes nothing"
