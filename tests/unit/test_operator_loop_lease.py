"""The Lease: one leader, judged by each replica's own clock."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from guided_operator.kube import transport
from guided_operator.kube.api_errors import ServerUnavailable
from guided_operator.kube.lease import DEADLINE_S, DURATION_S, Lease, LeaseLostError, NotLeadingError
from support.memory_api import MemoryApi

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock"


class Time:
    """A clock that jumps to the next moment at which somebody wakes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self.now + seconds, woken))
        await woken.wait()

    async def drive(self, work: Coroutine[Any, Any, None]) -> None:
        """Let time pass until the work is done."""
        task = asyncio.create_task(work)
        while not task.done():
            await self._pass()
        task.result()

    async def until(self, then: float, *work: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
        """Let time pass until `then` with the work going on, and stop it; return its tasks."""
        tasks = [asyncio.create_task(each) for each in work]
        while self.now < then:
            await self._pass()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return tasks

    async def _pass(self) -> None:
        for _ in range(10):  # everybody goes on until they sleep
            await asyncio.sleep(0)
        if self._sleepers:
            self._sleepers.sort(key=lambda each: each[0])
            self.now, woken = self._sleepers.pop(0)
            woken.set()
            await asyncio.sleep(0)


def replica(api: MemoryApi, time: Time, name: str) -> Lease:
    return Lease(api, "ns", "lock", name, clock=time, sleep=time.sleep)


async def test_standby_takes_over_only_after_the_whole_duration_without_a_change() -> None:
    api, time = MemoryApi(), Time()
    first, second = replica(api, time, "a"), replica(api, time, "b")
    await first.acquire()
    died_at = time.now
    await time.drive(second.acquire())
    assert 15.0 <= time.now - died_at <= 18.0
    assert api.objects[PATH]["spec"]["holderIdentity"] == "b"
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 1
    assert not first.is_held(), "the old leader stopped acting before"


async def test_two_standbys_do_not_both_win() -> None:
    api, time = MemoryApi(), Time()
    dead, second, third = (replica(api, time, name) for name in "abc")
    await dead.acquire()
    await time.until(1015.0, second.acquire(), third.acquire())
    assert [second.is_held(), third.is_held()].count(True) == 1


async def test_renewed_lease_is_never_taken() -> None:
    api, time = MemoryApi(), Time()
    first, second = replica(api, time, "a"), replica(api, time, "b")
    await first.acquire()
    tasks = await time.until(1100.0, first.keep(), second.acquire())
    assert all(task.cancelled() for task in tasks), "one keeps and one waits, to the end"
    assert first.is_held()
    assert not second.is_held()
    assert (first.waits, second.waits) == (False, True)


async def test_released_lease_is_taken_at_the_next_look() -> None:
    api, time = MemoryApi(), Time()
    first, second = replica(api, time, "a"), replica(api, time, "b")
    await first.acquire()
    await first.release()
    assert not first.is_held()
    released_at = time.now
    await time.drive(second.acquire())
    assert time.now - released_at <= 2.0


async def test_leader_ends_when_it_cannot_renew_before_the_deadline() -> None:
    api, time = MemoryApi(), Time()
    lease = replica(api, time, "a")
    await lease.acquire()
    api.faults = [ServerUnavailable("down")] * 100
    with pytest.raises(LeaseLostError):
        await time.drive(lease.keep())
    assert time.now - 1000.0 <= 15.0
    assert not lease.is_held()


class Slow(MemoryApi):
    """Its next writes take so long; what takes longer than was asked for is no answer."""

    def __init__(self, time: Time, *takes_s: float) -> None:
        super().__init__()
        self.time, self.takes_s = time, list(takes_s)

    async def patch(self, path: str, body: Any, *, timeout_s: float = 1.0, **how: Any) -> Any:
        takes_s = self.takes_s.pop(0) if self.takes_s else 0.0
        await self.time.sleep(min(takes_s, timeout_s))
        if takes_s > timeout_s:
            raise ServerUnavailable("late")
        return await super().patch(path, body, timeout_s=timeout_s, **how)


async def test_one_late_answer_after_a_slow_one_is_no_loss() -> None:
    time = Time()
    api = Slow(time, 3.9, 4.1)
    lease = replica(api, time, "a")
    await lease.acquire()
    held: list[bool] = []

    async def watch() -> None:
        while True:
            held.append(lease.is_held())
            await time.sleep(0.1)

    await time.until(1020.0, lease.keep(), watch())
    assert not api.takes_s
    assert all(held)


async def test_leader_ends_when_another_holds_the_lease() -> None:
    api, time = MemoryApi(), Time()
    lease = replica(api, time, "a")
    await lease.acquire()
    await api.patch(PATH, {"metadata": {}, "spec": {"holderIdentity": "b"}}, kind="merge")
    with pytest.raises(LeaseLostError, match="another"):
        await time.drive(lease.keep())
    assert not lease.is_held()


async def test_renewal_whose_answer_was_lost_is_no_loss() -> None:
    api, time = MemoryApi(), Time()
    lease = replica(api, time, "a")
    await lease.acquire()
    await api.patch(PATH, {"metadata": {}, "spec": {"renewTime": "later"}}, kind="merge")  # as if ours
    await time.until(1020.0, lease.keep())
    assert lease.is_held()


async def test_no_write_is_begun_without_the_lease_nor_outlasts_it() -> None:
    time = Time()
    lease = replica(MemoryApi(), time, "a")
    with pytest.raises(NotLeadingError):
        lease.bound_s(1.0)
    await lease.acquire()
    for at, left_s in ((0.0, 15.0), (9.9, 5.1)):
        time.now = 1000.0 + at
        assert lease.bound_s(20.0) == pytest.approx(left_s), "a standby may act 15 s after the renewal"
    time.now += 20.0  # the process was stopped for so long
    with pytest.raises(NotLeadingError):
        lease.bound_s(1.0)


async def test_kernel_resends_nothing_once_a_standby_may_act() -> None:
    assert DURATION_S - DEADLINE_S >= transport.UNSENT_MS / 1000
    with transport.open_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)) as made:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == transport.UNSENT_MS
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
