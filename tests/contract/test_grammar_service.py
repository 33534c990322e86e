"""The grammar service as its peers see it: real libraries, real worker processes, the real socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest

from guided_contract.config import CompileConfig, GuidedDecodingConfig, PodConfig
from guided_contract.wire import Failed, Kind, Prepared, Refused
from support import grammars
from support.engine import pod_config
from support.sidecar import Api, Rank, Sidecar, busy_worker, exists, kill, until

# What a compile may take: long, because these machines can be busy. Deadlines are the clients' own.
CAP_S = 60.0
DEADLINE_S = 4.0


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    compile_config = CompileConfig(timeout_s=CAP_S, max_schema_bytes=128 << 10, max_depth=20)
    pod = pod_config(
        tmp_path_factory.mktemp("sidecar"), guided_decoding=GuidedDecodingConfig(compile=compile_config)
    )
    started = Sidecar.start(pod)
    try:
        asyncio.run(_wait_for_workers(pod))
        yield started
    finally:
        started.stop()


async def _wait_for_workers(pod: PodConfig) -> None:
    """Wait until the service prepares grammars, which it refuses while its template warms up."""
    async with Rank.connected(pod), Api.connected(pod) as api, asyncio.timeout(60):
        while not isinstance(await api.prepare("choice", '["a"]'), Prepared):
            pass


@pytest.fixture
async def rank(sidecar: Sidecar) -> AsyncIterator[Rank]:
    async with Rank.connected(sidecar.pod) as connected:
        yield connected


@pytest.fixture
async def api(sidecar: Sidecar, rank: Rank) -> AsyncIterator[Api]:  # noqa: ARG001 - a rank must be there
    async with Api.connected(sidecar.pod) as connected:
        yield connected


@pytest.mark.parametrize(("kind", "spec"), grammars.OF_EVERY_KIND.values(), ids=grammars.OF_EVERY_KIND)
async def test_a_grammar_of_every_kind_is_loaded_on_the_rank(
    api: Api, rank: Rank, kind: Kind, spec: str
) -> None:
    answer = await api.prepare(kind, spec)

    assert isinstance(answer, Prepared), answer
    load = next(load for load in rank.loads if load.key == answer.key)
    assert load.backend == answer.backend
    assert load.spec


async def test_a_prepared_grammar_costs_no_second_compile_or_load(api: Api, rank: Rank) -> None:
    schema = {"type": "object", "properties": {"once": {"type": "integer"}}}
    first = await api.prepare("json", json.dumps(schema))
    before = len(rank.loads)

    again = await api.prepare("json", json.dumps(schema))

    assert isinstance(first, Prepared)
    assert isinstance(again, Prepared)
    assert again.key == first.key
    assert len(rank.loads) == before


@pytest.mark.parametrize(
    ("spec", "code", "path", "words"),
    [
        ('{"properties": {"a": {"type": "strng"}}}', "invalid", "$.properties.a.type", "is not a JSON type"),
        ('{"items": ' * 21 + "true" + "}" * 21, "too_large", None, "21 levels deep; the limit is 20"),
        ('{"not": {"format": "email"}}', "unsupported", "$.not", "`not` is supported only as `not: {}`"),
    ],
)
async def test_a_refusal_says_which_keyword_and_why(
    api: Api, spec: str, code: str, path: str | None, words: str
) -> None:
    """All others: test_grammar_refusals.py."""
    answer = await api.prepare("json", spec)

    assert isinstance(answer, Refused)
    assert (answer.code, answer.path) == (f"grammar_{code}", path), answer.message
    assert words in answer.message


async def test_an_endless_compile_ends_at_its_deadline_and_costs_nobody_else(
    sidecar: Sidecar, api: Api
) -> None:
    """vLLM 54003, 53130, 14151: a thread that compiles cannot be stopped."""
    idle = sidecar.workers()
    _, endless = api.begin("regex", grammars.endless_regex(1), backend="xgrammar", timeout_s=DEADLINE_S)
    busy = await busy_worker(sidecar)

    for number in range(5):
        assert isinstance(await api.prepare("choice", json.dumps([f"while {number}"])), Prepared)
    assert not endless.done(), "the short ones waited for the endless one"
    answer = await endless

    assert isinstance(answer, Refused)
    assert answer.code == "grammar_compile_timeout"
    assert f"within {DEADLINE_S:g} s" in answer.message
    assert busy in idle
    assert not exists(busy), "the worker is still in the process table"


async def test_a_second_crash_refuses_those_who_wait_for_that_grammar_and_nobody_else(
    sidecar: Sidecar, api: Api
) -> None:
    """vLLM 51660: a crash in the grammar library was the engine's."""
    spec = grammars.endless_regex(3)
    waiting = [api.begin("regex", spec, backend="xgrammar")[1] for _ in range(3)]
    first = await busy_worker(sidecar)
    kill(first)
    second = await busy_worker(sidecar)  # which has it once more
    assert second != first
    _, other = api.begin("regex", grammars.slow_regex(200), backend="xgrammar")
    kill(second)

    refused = [await answer for answer in waiting]

    assert {answer.code for answer in refused if isinstance(answer, Refused)} == {"grammar_compile_crashed"}
    assert len(refused) == 3
    assert isinstance(await other, Prepared)
    assert isinstance(await api.prepare("choice", '["after two crashes"]'), Prepared)


async def test_who_leaves_while_a_crashed_compile_is_tried_again_takes_no_guilt_away(
    sidecar: Sidecar, api: Api
) -> None:
    """Else one grammar could have all others wait."""
    spec = grammars.endless_regex(9)
    number, _ = api.begin("regex", spec, backend="xgrammar")
    kill(await busy_worker(sidecar))
    second = await busy_worker(sidecar)
    api.release(number)
    await until(lambda: not exists(second))
    async with asyncio.timeout(30):
        refused = await api.prepare("regex", spec, backend="xgrammar")
    assert isinstance(refused, Refused)
    assert refused.code == "grammar_compile_crashed"


async def test_the_last_waiter_who_cancels_kills_the_worker(sidecar: Sidecar, api: Api) -> None:
    spec = grammars.endless_regex(4)
    (first, _), (second, _) = (api.begin("regex", spec, backend="xgrammar") for _ in range(2))
    busy = await busy_worker(sidecar)

    api.release(first)
    assert isinstance(await api.prepare("choice", '["one has left"]'), Prepared)
    assert exists(busy)
    api.release(second)

    await until(lambda: not exists(busy))


async def test_a_template_that_dies_is_replaced(sidecar: Sidecar, api: Api) -> None:
    template = sidecar.template_pid()
    assert template is not None
    orphans = sidecar.workers()
    kill(template)

    await until(lambda: not any(exists(pid) for pid in {template, *orphans}))
    assert isinstance(await api.prepare("choice", '["a new template"]'), Prepared)
    assert sidecar.template_pid() not in (None, template)


async def test_a_grammar_that_is_slow_on_a_rank_is_refused_for_a_while(api: Api, rank: Rank) -> None:
    """Also to those who would find it in the cache: each of its sequences would hold up the rank once."""
    slow = await api.prepare("choice", '["slow on a rank"]')
    assert isinstance(slow, Prepared)
    for key in ("never heard of", slow.key):
        rank.client.send(Failed(request_id="r", code="sequence_slow", key=key))
    async with asyncio.timeout(10):
        while isinstance(answer := await api.prepare("choice", '["slow on a rank"]'), Prepared):
            pass
    assert answer.code == "grammar_slow"
    assert answer.message.startswith("a rank took too long")
    assert isinstance(await api.prepare("choice", '["another"]'), Prepared)


async def test_a_killed_supervisor_leaves_nothing(sidecar: Sidecar) -> None:
    """The last test of this sidecar."""
    family = sidecar.processes()
    sidecar.process.kill()
    await until(lambda: not any(exists(pid) for pid in family))
