"""Tasks that must live: what they raise is logged, counted, and survived."""

import asyncio

import pytest

from guided_contract import tasks
from guided_contract.tasks import Living, live


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
    monkeypatch.setattr(tasks, "_DELAY_S", 0.01)


async def test_what_raises_begins_again_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(PermissionError("first"), RecursionError("second"))
    living = Living("work", work.run)
    living.start()
    await asyncio.wait_for(work.goes_on.wait(), 10)
    assert tasks.failures == {"work": 2}
    await living.stop()
    assert caplog.text.count("Traceback") == 2


async def test_a_cancelled_part_is_a_failure_and_a_cancelled_task_is_not() -> None:
    work = Work(asyncio.CancelledError())
    task = asyncio.create_task(live("work", work.run))
    await asyncio.wait_for(work.goes_on.wait(), 10)
    assert tasks.failures == {"work": 1}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tasks.failures == {"work": 1}
