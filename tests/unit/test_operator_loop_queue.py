"""The keyed queue: no event is lost, no key is handled twice at once, failing keys wait."""

import asyncio
import time

import pytest

from guided_operator.kube.queue import Backoff, Key, WorkQueue

A, B = Key("ns", "a"), Key("ns", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def take_now(queue: WorkQueue) -> Key | None:
    """Return a key that is due, or None."""
    try:
        async with asyncio.timeout(0.02):
            return await queue.take()
    except TimeoutError:
        return None


async def test_key_rung_twice_is_handled_once(clock: Clock) -> None:
    queue = WorkQueue(clock)
    queue.add(A)
    queue.add(A)
    assert await take_now(queue) == A
    queue.done(A)
    assert await take_now(queue) is None


async def test_key_rung_while_it_is_handled_comes_again_and_only_then(clock: Clock) -> None:
    queue = WorkQueue(clock)
    queue.add(A)
    assert await take_now(queue) == A
    queue.add(A)
    assert await take_now(queue) is None, "one worker per key at a time"
    queue.done(A)
    assert await take_now(queue) == A


async def test_another_key_does_not_wait_for_a_busy_one(clock: Clock) -> None:
    queue = WorkQueue(clock)
    queue.add(A)
    assert await take_now(queue) == A
    queue.add(A)
    queue.add(B)
    assert await take_now(queue) == B


async def test_failing_key_waits_twice_as_long_each_time_up_to_a_bound(clock: Clock) -> None:
    queue = WorkQueue(clock, Backoff(first_s=1.0, last_s=5.0))
    delays = []
    for _ in range(5):
        queue.add(A)
        assert await take_now(queue) == A
        delays.append(queue.failed(A))
        assert await take_now(queue) is None
    assert delays == [1.0, 2.0, 4.0, 5.0, 5.0]
    queue.add(A)
    assert await take_now(queue) == A
    queue.done(A)
    queue.add(A)
    await take_now(queue)
    assert queue.failed(A) == 1.0, "a success ends the row"


async def test_server_decides_where_it_asks_for_more(clock: Clock) -> None:
    queue = WorkQueue(clock)
    queue.add(A)
    await take_now(queue)
    assert queue.failed(A, at_least_s=30.0) == 30.0


async def test_sooner_bell_wins_and_later_one_changes_nothing(clock: Clock) -> None:
    queue = WorkQueue(clock)
    queue.add(A, delay_s=600.0)
    queue.add(A, delay_s=5.0)
    queue.add(A, delay_s=300.0)
    clock.now += 4.9
    assert await take_now(queue) is None
    clock.now += 0.2
    assert await take_now(queue) == A
    queue.done(A)
    clock.now += 1000.0
    assert await take_now(queue) is None, "one pass, however often it was asked for"


async def test_waiting_worker_wakes_for_a_new_key(clock: Clock) -> None:
    queue = WorkQueue(clock)
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add(B)
    async with asyncio.timeout(1):
        assert await waiting == B


async def test_a_key_wakes_one_worker(clock: Clock) -> None:
    queue = WorkQueue(clock)
    waiting = [asyncio.create_task(queue.take()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add(A)
    queue.add(B)
    done, rest = await asyncio.wait(waiting, timeout=0.2)
    assert {one.result() for one in done} == {A, B}
    queue.add(A)
    queue.done(B)
    assert not any(one.done() for one in rest), "one worker has A, and B has nothing to do"
    queue.done(A)
    async with asyncio.timeout(1):
        assert await rest.pop() == A


async def test_a_worker_that_ends_takes_no_key_with_it(clock: Clock) -> None:
    queue = WorkQueue(clock)
    first, second, last = (asyncio.create_task(queue.take()) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    queue.add(A)  # given to the last to come, which does not run any more
    last.cancel()
    async with asyncio.timeout(1):
        assert await second == A
    ended = await asyncio.gather(first, last, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)
    queue.done(A)
    assert await take_now(queue) is None


async def test_an_idle_worker_wakes_when_a_key_falls_due() -> None:
    queue = WorkQueue(time.monotonic)
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add(B, delay_s=600.0)
    queue.add(A, delay_s=0.02)
    async with asyncio.timeout(5):
        assert await waiting == A
        queue.add(B, delay_s=0.02)
        assert await queue.take() == B
