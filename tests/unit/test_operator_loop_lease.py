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
from support.played import played

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock"


def now() -> float:
    return asyncio.get_running_loop().time()


def replica(api: MemoryApi, name: str = "a") -> Lease:
    return Lease(api, "ns", "lock", name, clock=now, sleep=asyncio.sleep)


async def go_on(seconds: float, *work: Coroutine[Any, Any, None]) -> None:
    """Have all of this go on for so long; what ends before with an error fails the test."""
    tasks = [asyncio.create_task(each) for each in work]
    _, rest = await asyncio.wait(tasks, timeout=seconds)
    for task in rest:
        task.cancel()
    for task in set(tasks) - rest:
        task.result()


@played
async def test_standby_takes_over_only_after_the_whole_duration_without_a_change() -> None:
    api = MemoryApi()
    first, second = replica(api), replica(api, "b")
    await first.acquire()
    await second.acquire()
    assert 15.0 <= now() <= 18.0
    assert api.objects[PATH]["spec"]["holderIdentity"] == "b"
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 1
    assert not first.is_held(), "the old leader stopped acting before"


@played
async def test_two_standbys_do_not_both_win() -> None:
    api = MemoryApi()
    dead, second, third = (replica(api, name) for name in "abc")
    await dead.acquire()
    await go_on(15.5, second.acquire(), third.acquire())
    assert [second.is_held(), third.is_held()].count(True) == 1


@played
async def test_lease_is_not_taken_while_it_is_renewed_and_at_the_next_look_once_it_is_released() -> None:
    api = MemoryApi()
    first, second = replica(api), replica(api, "b")
    await first.acquire()
    await go_on(100.0, first.keep(), second.acquire())
    assert (first.is_held(), second.is_held(), first.waits, second.waits) == (True, False, False, True)
    await first.release()
    assert not first.is_held()
    released_at = now()
    await second.acquire()
    assert now() - released_at <= 2.0


@played
async def test_leader_ends_when_it_cannot_renew_before_the_deadline() -> None:
    api = MemoryApi()
    lease = replica(api)
    await lease.acquire()
    api.faults = [ServerUnavailable("down")] * 100
    with pytest.raises(LeaseLostError):
        await lease.keep()
    assert now() <= 15.0
    assert not lease.is_held()


class Slow(MemoryApi):
    """Its next writes take so long; what takes longer than was asked for is no answer."""

    takes_s: list[float]

    async def patch(self, path: str, body: Any, *, timeout_s: float = 1.0, **how: Any) -> Any:
        takes_s = self.takes_s.pop(0) if self.takes_s else 0.0
        await asyncio.sleep(min(takes_s, timeout_s))
        if takes_s > timeout_s:
            raise ServerUnavailable("late")
        return await super().patch(path, body, timeout_s=timeout_s, **how)


@played
async def test_one_late_answer_after_a_slow_one_is_no_loss() -> None:
    api = Slow()
    api.takes_s = [3.9, 4.1]
    lease = replica(api)
    await lease.acquire()

    async def watch() -> None:
        while True:
            assert lease.is_held()
            await asyncio.sleep(0.1)

    await go_on(20.0, lease.keep(), watch())
    assert not api.takes_s


@played
async def test_leader_ends_when_another_holds_the_lease_and_not_when_an_answer_was_lost() -> None:
    api = MemoryApi()
    lease = replica(api)
    await lease.acquire()
    await api.patch(PATH, {"metadata": {}, "spec": {"renewTime": "later"}}, kind="merge")  # as if ours
    await go_on(20.0, lease.keep())
    assert lease.is_held()
    await api.patch(PATH, {"metadata": {}, "spec": {"holderIdentity": "b"}}, kind="merge")
    with pytest.raises(LeaseLostError, match="another"):
        await lease.keep()
    assert not lease.is_held()


@played
async def test_no_write_is_begun_without_the_lease_nor_outlasts_it() -> None:
    lease = replica(MemoryApi())
    with pytest.raises(NotLeadingError):
        lease.bound_s(1.0)
    await lease.acquire()
    assert lease.bound_s(20.0) == pytest.approx(15.0), "a standby may act 15 s after the renewal"
    await asyncio.sleep(9.9)
    assert lease.bound_s(20.0) == pytest.approx(5.1)
    await asyncio.sleep(10)  # the process was stopped for so long
    with pytest.raises(NotLeadingError):
        lease.bound_s(1.0)


def test_kernel_resends_nothing_once_a_standby_may_act() -> None:
    assert DURATION_S - DEADLINE_S >= transport.UNSENT_MS / 1000
    with transport.open_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)) as made:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == transport.UNSENT_MS
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
