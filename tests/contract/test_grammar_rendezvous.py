"""Two ranks at a real sidecar: late, gone, back, of another engine start, and unable to load."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.wire import Load, Loaded, Prepared, Refused
from support.engine import pod_config
from support.sidecar import Api, Rank, Sidecar, loaded, roundtrip, until

# For those who wait in vain; there is no compile in it that takes so long.
LIMIT_S = 3.0
_seen: set[str] = set()


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar of a pod with two ranks, its grammar workers warm."""
    guided = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60.0))
    folder = tmp_path_factory.mktemp("sidecar")
    started = Sidecar.start(pod_config(folder, guided_decoding=guided, tensor_parallel=2))
    try:
        asyncio.run(_warm(started))
        yield started
    finally:
        started.stop()


async def _warm(sidecar: Sidecar) -> None:
    """The first to ask: with one rank of two, which is not to say that the other is gone."""
    async with Rank.connected(sidecar.pod, 1) as rank, Api.connected(sidecar.pod) as api, asyncio.timeout(60):
        while True:
            answer = await api.prepare("choice", '["warm"]', timeout_s=LIMIT_S)
            assert isinstance(answer, Refused)
            if answer.code != "grammar_service_unavailable":
                break
    _seen.update(load.key for load in rank.loads)
    assert (answer.code, answer.message) == (
        "grammar_ranks_not_ready",
        f"rank 0 is not connected after {LIMIT_S:g} s",
    )
    assert answer.retry_after_s


async def asked(rank: Rank) -> None:
    """Wait until a rank was asked for a grammar that no test before asked for.

    Theirs it is told of too, when it connects: they stay leased for a second.
    """
    await until(lambda: any(load.key not in _seen for load in rank.loads), 60)
    _seen.update(load.key for load in rank.loads)


def silent(_load: Load) -> None:
    """Answer no Load."""


def catch_up(rank: Rank) -> None:
    """Answer every Load so far; what earlier tests asked for may be among them."""
    for load in rank.loads:
        rank.client.send(loaded(load))


async def refused(api: Api, text: str) -> tuple[str, str]:
    answer = await api.prepare("choice", json.dumps([text]), timeout_s=LIMIT_S)
    assert isinstance(answer, Refused)
    assert answer.retry_after_s, "another try may succeed"
    return answer.code, answer.message


async def prepared(api: Api, text: str) -> Prepared:
    answer = await api.prepare("choice", json.dumps([text]))
    assert isinstance(answer, Prepared), answer
    return answer


async def test_a_grammar_is_prepared_when_both_ranks_have_loaded_it(sidecar: Sidecar) -> None:
    """SGLang 4040, PR 30747: ranks differed on whether a grammar was ready."""
    async with (
        Rank.connected(sidecar.pod, 0),
        Rank.connected(sidecar.pod, 1, answer=silent) as late,
        Api.connected(sidecar.pod) as api,
    ):
        _, answer = api.begin("choice", '["both"]')
        await asked(late)
        await roundtrip(sidecar.pod)
        assert not answer.done()
        catch_up(late)

        assert isinstance(await answer, Prepared)


async def test_a_late_rank_is_named_and_its_late_answer_counts(sidecar: Sidecar) -> None:
    async with (
        Rank.connected(sidecar.pod, 0),
        Rank.connected(sidecar.pod, 1, answer=silent) as late,
        Api.connected(sidecar.pod) as api,
    ):
        said = await refused(api, "late")
        await asked(late)
        assert said == (
            "grammar_rank_late",
            f"rank 1 is slow: the grammar was not loaded within {LIMIT_S:g} s",
        )
        before = len(late.loads)
        catch_up(late)
        await prepared(api, "late")
        assert len(late.loads) == before


async def test_a_rank_that_goes_in_the_middle_of_a_load_is_waited_for_and_named(sidecar: Sidecar) -> None:
    async with Rank.connected(sidecar.pod, 0), Api.connected(sidecar.pod) as api:
        async with Rank.connected(sidecar.pod, 1, answer=silent) as going:
            _, answer = api.begin("choice", '["gone"]', timeout_s=LIMIT_S)
            await asked(going)
        said = await answer
        assert isinstance(said, Refused)
        assert (said.code, said.message) == (
            "grammar_rank_gone",
            f"rank 1 is disconnected and did not reconnect within {LIMIT_S:g} s",
        )
        assert said.retry_after_s
        async with Rank.connected(sidecar.pod, 1):
            await prepared(api, "gone")


async def test_who_waits_for_a_rank_that_comes_back_need_not_ask_again(sidecar: Sidecar) -> None:
    async with Rank.connected(sidecar.pod, 0), Api.connected(sidecar.pod) as api:
        async with Rank.connected(sidecar.pod, 1, answer=silent) as going:
            _, answer = api.begin("choice", '["back"]')
            await asked(going)
        async with Rank.connected(sidecar.pod, 1) as back:
            done = await answer
            assert isinstance(done, Prepared)
            assert [load.key for load in back.loads].count(done.key) == 1


async def test_another_engine_start_is_not_served_by_ranks_of_the_one_before(sidecar: Sidecar) -> None:
    """Its processes die one after the other; both boots are connected for a while."""
    async with (
        Rank.connected(sidecar.pod, 0, "old"),
        Rank.connected(sidecar.pod, 1, "old"),
        Api.connected(sidecar.pod, "new") as api,
    ):
        await prepared(api, "boots")
        async with Rank.connected(sidecar.pod, 0, "new") as first:
            await until(lambda: bool(first.loads), 60)
            said = await refused(api, "boots")
            assert said[0] == "grammar_rank_gone"
            assert said[1].startswith("rank 1 is disconnected")
            async with Rank.connected(sidecar.pod, 1, "new") as second:
                key = (await prepared(api, "boots")).key
                assert [load.key for load in second.loads].count(key) == 1


async def test_one_rank_that_cannot_load_is_named_and_asked_again(sidecar: Sidecar) -> None:
    broken = {"yes": True}

    def fail(load: Load) -> Loaded:
        return loaded(load, "no memory" if broken["yes"] else "")

    async with (
        Rank.connected(sidecar.pod, 0),
        Rank.connected(sidecar.pod, 1, answer=fail),
        Api.connected(sidecar.pod) as api,
    ):
        answer = await api.prepare("choice", '["unloadable"]')
        assert isinstance(answer, Refused)
        assert (answer.code, answer.message) == (
            "grammar_load_failed",
            "the grammar could not be loaded: rank 1: no memory",
        )
        broken["yes"] = False
        await prepared(api, "unloadable")
        await prepared(api, "and others")
