"""Tasks and threads that must live: what they raise is told once, counted, and survived."""

import asyncio
import logging
import threading

import pytest

from guided_contract import tasks
from guided_contract.tasks import Living, live, live_in_thread


class Work:
    """Raises what it is given, one by one, then waits until it is ended."""

    def __init__(self, *faults: BaseException) -> None:
        self.faults = list(faults)
        self.goes_on = asyncio.Event()

    async def run(self) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.goes_on.set()
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "failures", type(tasks.failures)())


async def test_what_raises_begins_again_until_it_is_stopped() -> None:
    work = Work(PermissionError("first"), RecursionError("second"))
    living = Living("work", work.run)
    living.start()
    assert tasks.failures == {}
    await asyncio.wait_for(work.goes_on.wait(), 10)
    assert tasks.failures == {"work": 2}
    await living.stop()
    await living.stop()


async def test_a_name_is_counted_from_its_first_start() -> None:
    work = Work()
    living = Living("work", work.run)
    living.start()
    await asyncio.wait_for(work.goes_on.wait(), 10)
    assert dict(tasks.failures) == {"work": 0}
    await living.stop()


async def test_the_same_failure_is_told_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(*[PermissionError("draining")] * 2, KeyError("other"))
    living = Living("judge", work.run)
    living.start()
    await asyncio.wait_for(work.goes_on.wait(), 10)
    await living.stop()
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 2
    assert "judge failed" in caplog.text
    assert caplog.text.count("Traceback") == 2


async def test_what_has_lasted_is_news_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_LASTED_S", 0.0)
    work = Work(*[PermissionError("draining")] * 3)
    living = Living("judge", work.run)
    living.start()
    await asyncio.wait_for(work.goes_on.wait(), 10)
    await living.stop()
    assert caplog.text.count("Traceback") == 3


async def test_waits_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)

    monkeypatch.setattr(tasks.asyncio, "sleep", sleep)
    work = Work(*[KeyError("x")] * 8)
    task = asyncio.create_task(live("work", work.run))
    await asyncio.wait_for(work.goes_on.wait(), 10)
    task.cancel()
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


async def test_a_cancelled_part_is_a_failure_and_a_cancelled_task_is_not() -> None:
    work = Work(asyncio.CancelledError())
    task = asyncio.create_task(live("work", work.run))
    await asyncio.wait_for(work.goes_on.wait(), 10)
    assert tasks.failures == {"work": 1}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tasks.failures == {"work": 1}


async def test_what_is_done_is_over() -> None:
    async def done() -> None:
        pass

    await live("work", done)


def test_a_thread_lives_on_too(caplog: pytest.LogCaptureFixture) -> None:
    stopped, faults = threading.Event(), [ValueError("a"), ValueError("a")]

    def run() -> None:
        if faults:
            raise faults.pop()
        stopped.set()

    live_in_thread("thread", run, stopped)
    assert tasks.failures == {"thread": 2}
    assert caplog.text.count("Traceback") == 1
