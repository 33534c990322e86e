"""A sidecar's peers: those who ask by name, those who break the protocol, and a service that dies."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from guided_contract import status, wire
from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.status import GrammarStatus
from guided_contract.wire import Hello, Loaded, Prepare, Prepared, Release, Welcome
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
    started = Sidecar.start(pod_config(folder, guided_decoding=guided, **more))
    try:
        yield started
    finally:
        started.stop()


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


def page(sidecar: Sidecar) -> status.PodStatus:
    url = f"http://127.0.0.1:{sidecar.pod.ports.sidecar}/status"
    return status.decode(httpx.get(url).content)


def seen(sidecar: Sidecar) -> dict[str, GrammarStatus]:
    """Return the page's grammars by name; the page is made anew once a second."""
    return {one.name: one for one in page(sidecar).grammars}


def is_ready(sidecar: Sidecar, name: str) -> bool:
    return name in seen(sidecar) and seen(sidecar)[name].state == "Ready"


async def test_a_pod_is_not_ready_before_its_named_grammars_are(sidecar: Sidecar) -> None:
    """The first test: no rank has been there yet."""
    boot = [Hello(role=role, pid=1, boot="boot") for role in ("launcher", "api", "core")]
    others = [await Client.open(sidecar.pod) for _ in boot]
    try:
        for client, hello in zip(others, boot, strict=True):
            await client.greet(hello)
        await until(lambda: "RanksMissing" in page(sidecar).reason, 20)
        assert {one.state for one in seen(sidecar).values()} == {"Pending"}
        async with Rank.connected(sidecar.pod, 0), Rank.connected(sidecar.pod, 1, answer=lambda _: None):
            # Heartbeats come first in the verdict, and nobody writes them here.
            await until(lambda: page(sidecar).reason == "EngineStalled", 20)
            assert {one.state for one in seen(sidecar).values()} == {"Pending"}
        async with Rank.connected(sidecar.pod, 0) as first, Rank.connected(sidecar.pod, 1):
            await until(lambda: is_ready(sidecar, "card") and is_ready(sidecar, "code"), 60)
            assert len(first.loads) == 2
        assert page(sidecar).grammars[0].name == "card"
    finally:
        for client in others:
            client.close()


async def test_a_name_is_prepared_as_its_text_is_and_says_what_it_stands_for(api: Api) -> None:
    by_name = await api.prepare_named("card")
    by_text = await api.prepare("json", CARD)

    assert isinstance(by_name, Prepared)
    assert isinstance(by_text, Prepared)
    assert (by_name.kind, by_name.spec) == ("json", CARD)
    assert by_name.key == by_text.key
    assert (by_text.kind, by_text.spec) == (None, "")


async def test_a_request_by_name_may_choose_its_backend(api: Api) -> None:
    for backend in ("xgrammar", "guidance"):
        answer = await api.prepare_named("card", backend=backend)
        assert isinstance(answer, Prepared), answer
        assert answer.backend == backend


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


GARBAGE = {
    "not msgpack": _framed(b"\xc1\xc1\xc1"),
    "a text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
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
    # It is a fork: more threads could hold a lock in the child for ever.
    assert len(os.listdir(f"/proc/{sidecar.process.pid}/task")) == 1  # noqa: PTH208 - a test may block

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


async def test_term_leaves_nothing(sidecar: Sidecar) -> None:
    """The last test of this sidecar."""
    family = sidecar.processes()
    sidecar.stop()
    assert sidecar.process._child.returncode == 0, "it had to be killed"
    assert not any(exists(pid) for pid in family)
    assert not sidecar.pod.service_socket.exists()


def _resident_kib(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123 - a line of /proc
        return int(file.read().split()[1]) * 4
