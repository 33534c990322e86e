"""Named grammars in a real sidecar: the mounted folder, the compilers, the socket, the status page."""

import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from guided_contract import status
from guided_contract.status import GrammarStatus
from guided_contract.wire import Hello, Prepared
from support.engine import pod_config
from support.sidecar import Api, Client, Rank, Sidecar, until

CARD = json.dumps({"type": "object", "properties": {"name": {"enum": ["ada", "bob"]}}, "required": ["name"]})


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar of a pod with two ranks and two named grammars."""
    folder = tmp_path_factory.mktemp("sidecar")
    mounted = folder / "named-grammars"
    mounted.mkdir()
    (mounted / "card.JSONSchema").write_text(CARD)
    (mounted / "code.Regex").write_text("[a-z]{3}")
    started = Sidecar.start(pod_config(folder, tensor_parallel=2, named_grammars_dir=str(mounted)))
    try:
        yield started
    finally:
        started.stop()


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
