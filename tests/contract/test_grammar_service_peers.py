"""Peers that break the protocol, and a service that dies: what each costs."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from guided_contract import wire
from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.wire import Hello, Loaded, Prepare, Prepared, Release, Welcome
from support.engine import pod_config
from support.sidecar import Api, Client, Rank, Sidecar, descendants, exists, kill, roundtrip, until

API = Hello(role="api", pid=1, boot="boot")


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar of a pod with two ranks."""
    guided = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60.0))
    folder = tmp_path_factory.mktemp("sidecar")
    started = Sidecar.start(pod_config(folder, guided_decoding=guided, tensor_parallel=2))
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
async def client(sidecar: Sidecar) -> AsyncIterator[Client]:
    opened = await Client.open(sidecar.pod)
    yield opened
    opened.close()


def _framed(body: bytes) -> bytes:
    return wire.LENGTH.pack(len(body)) + body


GARBAGE = {
    "not msgpack": _framed(b"\xc1\xc1\xc1"),
    "no message": _framed(msgspec.msgpack.encode({"type": "Nonsense"})),
    "a text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an empty frame": _framed(b""),
    "invalid UTF-8": _framed(b"\x82\xa4type\xa5Hello\xa4boot\xa2\xff\xff"),
    "a frame over the limit": wire.LENGTH.pack(wire.MAX_FRAME_BYTES + 1),
    "no hello": wire.frame(Release(id=1)),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_closes_only_its_own_connection(sidecar: Sidecar, client: Client, data: bytes) -> None:
    async with Api.connected(sidecar.pod) as other:
        client.writer.write(data)
        assert await client.is_closed()

        client_again = await Client.open(sidecar.pod)
        await client_again.greet(API)
        client_again.close()
        assert not other.client.reader.at_eof()


async def test_a_role_says_only_what_is_its_own(client: Client) -> None:
    await client.greet(API)
    client.send(Loaded(key="k"))

    assert await client.is_closed()


async def test_an_id_in_use_is_a_fault(client: Client) -> None:
    await client.greet(API)
    for _ in range(2):
        client.send(Prepare(id=7, kind="choice", spec='["a"]', timeout_s=5))

    assert await client.is_closed()


async def test_who_says_nothing_is_let_go(client: Client) -> None:
    assert await client.is_closed()


async def test_an_announced_frame_costs_no_memory_until_it_comes(sidecar: Sidecar) -> None:
    service = sidecar.service_pid()
    assert service is not None
    before = _resident_kib(service)
    clients = [await Client.open(sidecar.pod) for _ in range(50)]
    for one in clients:
        one.writer.write(wire.LENGTH.pack(wire.MAX_FRAME_BYTES))
    await roundtrip(sidecar.pod)

    assert _resident_kib(service) - before < 20 << 10
    for one in clients:
        one.close()


async def test_a_rank_that_there_is_not_is_cut_off(client: Client) -> None:
    """It counted as one that had not loaded."""
    client.send(Hello(role="rank", pid=1, boot="boot", rank=2, samples=True))
    assert await client.receive() == Welcome()
    assert await client.is_closed()


async def test_the_socket_is_for_our_user_alone(sidecar: Sidecar) -> None:
    assert sidecar.pod.service_socket.stat().st_mode & 0o777 == 0o600
    if os.geteuid() != 0:
        pytest.skip("acting as another user needs root: run the tests as root")
    folder = Path(sidecar.pod.run_dir)
    folder.chmod(0o755)  # noqa: ASYNC240 - a test may block
    sidecar.pod.service_socket.chmod(0o666)  # even so: the service looks at who connects
    code = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); "
        f"os.chdir({sidecar.pod.run_dir!r}); os.setuid(65534); s.connect('service.sock'); "
        "sys.exit(len(s.recv(1)))"
    )
    process = await asyncio.create_subprocess_exec("/usr/bin/env", "python3", "-c", code)
    try:
        assert await asyncio.wait_for(process.wait(), 20) == 0, "the service answered another user"
    finally:
        sidecar.pod.service_socket.chmod(0o600)
        folder.chmod(0o700)  # noqa: ASYNC240 - likewise


async def test_a_killed_service_is_back_and_old_leases_are_harmless(sidecar: Sidecar) -> None:
    async with (
        Rank.connected(sidecar.pod, 0),
        Rank.connected(sidecar.pod, 1),
        Api.connected(sidecar.pod) as api,
    ):
        assert isinstance(await api.prepare("choice", '["before"]'), Prepared)
        old = sidecar.service_pid()
        assert old is not None
        family = list(descendants(old))
        kill(old)
        await until(api.client.reader.at_eof)
        await until(lambda: sidecar.service_pid() not in (None, old))
        fresh = await Client.reach(sidecar.pod)
    await until(lambda: not any(exists(pid) for pid in family))

    fresh.send(API)
    assert await fresh.receive() == Welcome()
    fresh.send(Release(id=1))  # a lease of the service before
    fresh.close()
    async with (
        Rank.connected(sidecar.pod, 0),
        Rank.connected(sidecar.pod, 1),
        Api.connected(sidecar.pod) as api,
    ):
        assert isinstance(await api.prepare("choice", '["before"]'), Prepared)


async def test_a_service_that_was_killed_is_a_fork_of_one_thread_and_term_leaves_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """One with more could hold a lock in the child for ever, that of its memory allocator for one."""
    started = Sidecar.start(pod_config(tmp_path_factory.mktemp("sidecar")))
    try:
        first = started.service_pid()
        assert first is not None
        kill(first)
        await until(lambda: started.service_pid() not in (None, first), 60)
        assert len(os.listdir(f"/proc/{started.process.pid}/task")) == 1  # noqa: PTH208 - as below
        await until(lambda: len(started.workers()) == 2, 60)
        family = started.processes()
    finally:
        started.stop()

    assert started.process._child.returncode == 0, "it had to be killed"
    assert not any(exists(pid) for pid in family)
    assert not started.pod.service_socket.exists()


async def test_a_killed_supervisor_leaves_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    started = Sidecar.start(pod_config(tmp_path_factory.mktemp("sidecar")))
    try:
        await until(lambda: len(started.workers()) == 2, 60)
        family = started.processes()
    finally:
        started.process.kill()

    await until(lambda: not any(exists(pid) for pid in family))


def _resident_kib(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123 - a line of /proc
        return int(file.read().split()[1]) * 4
