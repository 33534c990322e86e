"""A sidecar's peers: those who ask by name, those who break the protocol, and a service that dies."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from guided_contract import wire
from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.wire import Hello, Loaded, Prepare, Prepared, Release
from support.engine import pod_config
from support.sidecar import Api, Client, Rank, Sidecar, descendants, exists, kill, roundtrip, until

API = Hello(role="api", pid=1, boot="boot")


CARD = json.dumps({"type": "object", "properties": {"name": {"enum": ["ada", "bob"]}}, "required": ["name"]})


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar of a pod with two ranks and two named grammars."""
    guided = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60.0))
    folder = tmp_path_factory.mktemp("sidecar")
    mounted = folder / "named-grammars"
    mounted.mkdir()
    (mounted / "card.JSONSchema").write_text(CARD)
    (mounted / "code.Regex").write_text("[a-z]{3}")
    more = {"tensor_parallel": 2, "named_grammars_dir": str(mounted)}
    with Sidecar.running(pod_config(folder, guided_decoding=guided, **more)) as started:
        yield started


@pytest.fixture
async def client(sidecar: Sidecar) -> AsyncIterator[Client]:
    opened = await Client.open(sidecar.pod)
    yield opened
    opened.close()


@pytest.fixture
async def ranks(sidecar: Sidecar) -> AsyncIterator[list[Rank]]:
    async with Rank.connected(sidecar.pod, 0) as first, Rank.connected(sidecar.pod, 1) as second:
        yield [first, second]


@pytest.fixture
async def api(sidecar: Sidecar, ranks: list[Rank]) -> AsyncIterator[Api]:
    del ranks  # they must be there
    async with Api.connected(sidecar.pod) as connected:
        yield connected


async def test_a_name_is_prepared_as_its_text_is_and_says_what_it_stands_for(api: Api) -> None:
    by_text = await api.prepare("json", CARD)
    assert isinstance(by_text, Prepared)
    for backend in (None, "xgrammar", "guidance"):
        by_name = await api.prepare_named("card", backend=backend)
        assert isinstance(by_name, Prepared), by_name
        assert (by_name.kind, by_name.spec) == ("json", CARD)
        assert by_name.backend == (backend or by_text.backend)
        assert backend is not None or by_name.key == by_text.key


async def test_ranks_that_start_anew_load_the_named_grammars_unasked(
    sidecar: Sidecar, ranks: list[Rank]
) -> None:
    await until(lambda: all(len(rank.loads) >= 2 for rank in ranks))
    async with Rank.connected(sidecar.pod, 0, "anew") as first, Rank.connected(sidecar.pod, 1, "anew"):
        await until(lambda: len(first.loads) >= 2)
        before = [load.key for load in first.loads]
        async with Api.connected(sidecar.pod) as api:
            answers = [await api.prepare_named(name) for name in ("card", "code")]
        assert {answer.key for answer in answers if isinstance(answer, Prepared)} <= set(before)
        assert len(first.loads) == len(before)


def _framed(body: bytes) -> bytes:
    return wire.LENGTH.pack(len(body)) + body


ASKED = wire.frame(Prepare(id=7, kind="choice", spec='["a"]', timeout_s=5))
# Whether it has said hello, and what it sends then.
FAULTS = {
    "not msgpack": (False, _framed(b"\xc1\xc1\xc1")),
    "a text": (False, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a frame over the limit": (False, wire.LENGTH.pack(wire.MAX_FRAME_BYTES + 1)),
    "no hello": (False, wire.frame(Release(id=1))),
    "nothing": (False, b""),
    "a rank that there is not": (
        False,
        wire.frame(Hello(role="rank", pid=1, boot="boot", rank=2, samples=True)),
    ),
    "another role's word": (True, wire.frame(Loaded(key="k"))),
    "an id in use": (True, ASKED * 2),
}


@pytest.mark.parametrize(("greets", "data"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_closes_only_its_own_connection(
    sidecar: Sidecar, client: Client, greets: Any, data: bytes
) -> None:
    async with Api.connected(sidecar.pod) as other:
        if greets:
            await client.greet(API)
        client.writer.write(data)
        assert await client.is_closed()
        client_again = await Client.open(sidecar.pod)
        await client_again.greet(API)
        client_again.close()
        assert not other.client.reader.at_eof()


async def test_an_announced_frame_costs_no_memory_until_it_comes(sidecar: Sidecar) -> None:
    service = sidecar.service_pid()
    assert service is not None
    process = psutil.Process(service)
    before = process.memory_info().rss
    clients = [await Client.open(sidecar.pod) for _ in range(50)]
    for one in clients:
        one.writer.write(wire.LENGTH.pack(wire.MAX_FRAME_BYTES))
    await roundtrip(sidecar.pod)

    assert process.memory_info().rss - before < 20 << 20
    for one in clients:
        one.close()


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
    old = sidecar.service_pid()
    assert old is not None
    async with Api.connected(sidecar.pod) as api:
        family = list(descendants(old))
        kill(old)
        await until(api.client.reader.at_eof)
        await until(lambda: sidecar.service_pid() not in (None, old))
        fresh = await Client.reach(sidecar.pod)
    await until(lambda: not any(exists(pid) for pid in family))
    # It is a fork: more threads could hold a lock in the child for ever.
    assert len(os.listdir(f"/proc/{sidecar.process.pid}/task")) == 1  # noqa: PTH208 - a test may block
    await fresh.greet(API)
    fresh.send(Release(id=1))  # a lease of the service before
    fresh.close()
    pod = sidecar.pod
    async with Rank.connected(pod, 0), Rank.connected(pod, 1), Api.connected(pod) as api:
        assert isinstance(await api.prepare("choice", '["before"]'), Prepared)


async def test_a_killed_supervisor_leaves_nothing(tmp_path: Path) -> None:
    with Sidecar.running(pod_config(tmp_path)) as sidecar:
        await until(sidecar.workers, 60)
        family = sidecar.processes()
        sidecar.process.kill()
        await until(lambda: not any(exists(pid) for pid in family))


async def test_term_leaves_nothing(sidecar: Sidecar) -> None:
    """The last test of this sidecar."""
    family = sidecar.processes()
    sidecar.stop()
    assert sidecar.process._child.returncode == 0, "it had to be killed"
    assert not any(exists(pid) for pid in family)
    assert not sidecar.pod.service_socket.exists()
