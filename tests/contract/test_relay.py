"""Two real sidecars, of two nodes: the first prepares and compares for the ranks of both."""

import asyncio
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from guided_contract import records
from guided_contract.config import CompileConfig, GuidedDecodingConfig, PodConfig
from guided_contract.records import Digest, Digests
from guided_contract.wire import End, Failed, Hello, Prepared, Refused
from support.nodes import place, two_nodes
from support.sidecar import Api, Client, Rank, Sidecar, until

_MOST = 256  # Settings.max_connections
ENUM = json.dumps({"enum": ["red", "green", "blue"]})


@pytest.fixture(scope="module")
def sidecars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sidecar, Sidecar]]:
    """Sidecars of a replica with tensor parallelism over two nodes, a rank on each."""
    guided = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60.0), backend="XGrammar")
    folders = tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")
    pods = two_nodes(folders, guided_decoding=guided, tensor_parallel=2)
    second = Sidecar.start(pods[1], place(1))  # before the first: it has to wait for it
    try:
        first = Sidecar.start(pods[0], place(0))
        try:
            yield first, second
        finally:
            first.stop()
    finally:
        second.stop()


@pytest.fixture
def pods(sidecars: tuple[Sidecar, Sidecar]) -> tuple[PodConfig, PodConfig]:
    return sidecars[0].pod, sidecars[1].pod


def states(pod: PodConfig) -> dict[int, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{pod.ports.sidecar}/status", timeout=5) as answer:
        return {each["rank"]: each["state"] for each in json.loads(answer.read())["ranks"]}


async def greeted(pod: PodConfig, **hello: Any) -> Client:
    client = await Client.open(pod)
    await client.greet(Hello(pid=os.getpid(), boot="boot", **hello))
    return client


async def test_every_nodes_ranks_have_the_very_same_grammar(pods: tuple[PodConfig, PodConfig]) -> None:
    first, second = pods
    async with (
        Rank.connected(first, 0) as near,
        Rank.connected(second, 1, boot="other") as far,
        Api.connected(first) as api,
        asyncio.timeout(90),
    ):
        answer = await api.prepare("json", ENUM)
        assert isinstance(answer, Prepared), answer
        assert answer.backend == "xgrammar"
        specs = [each.spec for rank in (near, far) for each in rank.loads if each.key == answer.key]
        assert specs == [specs[0]] * 2
        assert specs[0], "a small grammar goes as text (docs/how-a-grammar-is-served.md)"


async def test_rank_of_another_node_that_goes_is_named(pods: tuple[PodConfig, PodConfig]) -> None:
    first, second = pods
    async with Rank.connected(first, 0), Api.connected(first) as api, asyncio.timeout(60):
        async with Rank.connected(second, 1):
            await until(lambda: states(second) == {1: "Missing"} and 1 in states(first))
            assert isinstance(await api.prepare("choice", '["here"]'), Prepared)
        answer = await api.prepare("choice", '["gone"]', timeout_s=1.0)
        assert isinstance(answer, Refused)
        assert answer.code == "grammar_rank_gone"
        assert answer.message.startswith("rank 1 is disconnected")


async def test_what_another_nodes_rank_gives_up_ends_everywhere(pods: tuple[PodConfig, PodConfig]) -> None:
    first, second = pods
    async with Rank.connected(second, 1) as far, asyncio.timeout(30):
        api = await greeted(first, role="api")
        far.client.send(Failed(request_id="r-1", code="grammar_dead_end"))
        assert await api.receive() == End(request_id="r-1", code="grammar_dead_end")
        api.close()


async def test_ranks_of_two_nodes_are_compared(pods: tuple[PodConfig, PodConfig]) -> None:
    first, second = pods
    async with Rank.connected(first, 0), Rank.connected(second, 1), asyncio.timeout(30):
        api = await greeted(first, role="api")

        def say(pod: PodConfig, rank: int, digest: int) -> None:
            record = Digests(rank=rank, digests=[Digest("r-2", 0, 1, digest)])
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(records.encode(record), str(pod.telemetry_socket))

        waiting = asyncio.create_task(api.receive())
        say(first, 0, 7)
        while not waiting.done():  # until the far rank's link is welcome: what it says before is lost
            say(second, 1, 8)
            await asyncio.wait([waiting], timeout=0.2)
        assert waiting.result() == End(request_id="r-2", code="ranks_desynchronized")
        api.close()


async def test_first_node_that_begins_anew_is_told_of_all_ranks(
    sidecars: tuple[Sidecar, Sidecar], pods: tuple[PodConfig, PodConfig]
) -> None:
    first, second = pods
    far = await greeted(second, role="rank", rank=1, samples=True)
    await until(lambda: states(first)[1] == "Connected")
    pid = sidecars[0].service_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert await far.is_closed(), "a rank learns that what it has loaded is nobody's"
    far.close()
    await until(lambda: sidecars[0].service_pid() not in {None, pid})
    (await Client.reach(first)).close()
    async with (
        Rank.connected(first, 0),
        Rank.connected(second, 1),
        Api.connected(first) as api,
        asyncio.timeout(60),
    ):
        assert isinstance(await api.prepare("choice", '["again"]'), Prepared)


async def test_strangers_on_the_nodes_port_keep_none_of_the_pods_own_processes_out(
    sidecars: tuple[Sidecar, Sidecar],
) -> None:
    """They have a socket of their own."""
    first = sidecars[0].pod
    strangers = [await asyncio.open_connection("127.0.0.1", first.ports.nodes) for _ in range(2 * _MOST)]
    try:
        async with Api.connected(first) as api, Rank.connected(first, 0):
            assert isinstance(await api.prepare("choice", '["answered"]', 1), Refused), "rank 1 is not there"
    finally:
        for _, writer in strangers:
            writer.transport.abort()
