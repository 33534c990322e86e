"""A service and its real workers: their limits, what is counted, and the spans of a grammar."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib import metadata

import msgspec
import psutil
import pytest
import pytest_asyncio

from guided_contract import names
from guided_contract.backends import BACKENDS
from guided_contract.config import CompileConfig, GuidedDecodingConfig, PodConfig
from guided_contract.wire import Kind, Prepare, Prepared, Refused
from guided_sidecar.ranks.agreement import Agreement
from guided_sidecar.settings import Settings
from guided_sidecar.socket.grammar_service import GrammarService
from support import grammars
from support.engine import pod_config, write_config
from support.sidecar import Api, Rank, busy_worker, descendants, exists, is_grammar, kill, until
from support.spans import MemorySpans, attributes, error_code

pytestmark = pytest.mark.asyncio(loop_scope="module")

# These machines can be busy.
PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60, memory_bytes=96 << 20))


@dataclass
class Shared:
    """A service that all tests use, as to start one takes seconds of CPU, and what it told before."""

    service: GrammarService
    pod: PodConfig
    spans: MemorySpans
    before: Counter[str] = field(default_factory=Counter)

    def told(self) -> Counter[str]:
        """Return how requests were answered, and why workers were lost, in the running test."""
        now = self.service.snapshot()
        return Counter({**now.cache.answers, **now.workers.restarts}) - self.before

    def workers(self) -> set[int]:
        """Return the grammar processes below this one, without the template, their parent."""
        mine = [pid for pid in descendants(os.getpid()) if is_grammar(pid)]
        return {pid for pid in mine if any(pid in [*descendants(other)][1:] for other in mine)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
    pod = pod_config(tmp_path_factory.mktemp("run"), guided_decoding=PATIENT)
    spans = MemorySpans()
    service = GrammarService(Settings(pod=pod), spans.tracer, Agreement(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(names.ENV_CONFIG, str(write_config(pod)))
        await service.start()
        yield Shared(service, pod, spans)
        await service.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def shared(started: Shared) -> Shared:
    await until(lambda: started.service.snapshot().workers.idle == 2, 60)
    started.spans.finished.clear()
    started.before = Counter()
    started.before = started.told()
    return started


@pytest_asyncio.fixture(loop_scope="module")
async def rank(shared: Shared) -> AsyncIterator[Rank]:
    async with Rank.connected(shared.pod) as connected:
        yield connected


@pytest_asyncio.fixture(loop_scope="module")
async def api(shared: Shared, rank: Rank) -> AsyncIterator[Api]:  # noqa: ARG001 - a rank must be there
    async with Api.connected(shared.pod) as connected:
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


async def test_an_endless_compile_ends_at_its_deadline_and_costs_nobody_else(
    shared: Shared, api: Api
) -> None:
    """vLLM 54003, 53130, 14151: a thread that compiles cannot be stopped."""
    idle = shared.workers()
    _, endless = api.begin("regex", grammars.endless_regex(1), backend="xgrammar", timeout_s=4.0)
    busy = await busy_worker(shared)
    for number in range(5):
        assert isinstance(await api.prepare("choice", json.dumps([f"while {number}"])), Prepared)
    assert not endless.done(), "the short ones waited for the endless one"
    answer = await endless
    assert isinstance(answer, Refused)
    assert answer.code == "grammar_compile_timeout"
    assert "within 4 s" in answer.message
    assert busy in idle
    assert not exists(busy), "the worker is still in the process table"
    assert shared.told()["deadline"] == 1


async def test_who_leaves_while_a_crashed_compile_is_tried_again_takes_no_guilt_away(
    shared: Shared, api: Api
) -> None:
    """Else one grammar could have all others wait."""
    spec = grammars.endless_regex(9)
    number, _ = api.begin("regex", spec, backend="xgrammar")
    kill(await busy_worker(shared))
    second = await busy_worker(shared)
    api.release(number)
    await until(lambda: not exists(second))
    async with asyncio.timeout(30):
        refused = await api.prepare("regex", spec, backend="xgrammar")
    assert isinstance(refused, Refused)
    assert refused.code == "grammar_compile_crashed"


async def test_a_compiling_worker_is_limited(shared: Shared, api: Api) -> None:
    api.begin("regex", grammars.endless_regex(), backend="xgrammar")
    busy = psutil.Process(await busy_worker(shared))
    assert busy.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    memory_bytes = PATIENT.compile.memory_bytes
    assert memory_bytes < busy.rlimit(psutil.RLIMIT_AS)[0] < memory_bytes + (1 << 30)
    # Of others than the measured ones keywords are not relied upon: test_sidecar_grammar_gaps.py.
    installed = {one.distribution: metadata.version(one.distribution) for one in BACKENDS.values()}
    assert shared.service.snapshot().workers.versions == installed


async def test_a_compile_over_its_memory_limit_is_refused_as_that(shared: Shared, api: Api) -> None:
    before = shared.workers()
    refused = await api.prepare("regex", grammars.hungry_regex(), backend="xgrammar")
    failure = shared.service.snapshot().workers.last_failure

    assert isinstance(refused, Refused)
    assert refused.code == "grammar_compile_memory", refused.message
    assert failure is not None
    assert failure.code == "grammar_compile_memory"
    assert isinstance(await api.prepare("choice", '["small"]'), Prepared)
    assert before - shared.workers(), "the worker whose memory ran out still serves"
    assert shared.told()["memory"] == 1


async def test_a_worker_is_replaced_after_so_many_jobs_and_when_its_cache_would_hide_what_a_grammar_costs(
    shared: Shared, api: Api
) -> None:
    before = shared.workers()
    jobs = 2 * Settings(pod=shared.pod).jobs_per_worker + 1
    asked = (api.prepare("choice", json.dumps([f"job {number}"])) for number in range(jobs))
    assert all(isinstance(answer, Prepared) for answer in await asyncio.gather(*asked))
    await until(lambda: bool(before - shared.workers()))

    before = shared.workers()
    slow = await api.prepare("regex", grammars.slow_regex(400), backend="xgrammar")
    assert isinstance(slow, Prepared), slow
    await until(lambda: bool(before - shared.workers()))
    assert shared.told() == {"miss": jobs + 1}, "no worker was lost"


async def test_what_was_asked_for_is_counted(shared: Shared, api: Api) -> None:
    spec = grammars.slow_regex(200)
    await asyncio.gather(*[api.begin("regex", spec, backend="xgrammar")[1] for _ in range(2)])
    await api.prepare("regex", spec, backend="xgrammar")
    for _ in range(2):
        await api.prepare("json", '{"type": "nonsense"}')
    await api.prepare("json", "{")
    number, _answer = api.begin("regex", grammars.endless_regex(1), backend="xgrammar")
    busy = await busy_worker(shared)
    api.release(number)
    await until(lambda: not exists(busy))
    _, crashed = api.begin("regex", grammars.endless_regex(2), backend="xgrammar")
    for _ in range(2):
        kill(await busy_worker(shared))
    assert isinstance(await crashed, Refused)

    counted = {"miss": 5, "joined": 1, "hit": 1, "refused": 1, "cancelled": 1, "crashed": 2}
    assert shared.told() == counted
    now = shared.service.snapshot()
    assert now.cache.leases == 3
    assert 0 < now.cache.leased_bytes <= now.cache.size_bytes
    assert (now.workers.busy, now.workers.queued) == (0, 0)


async def test_what_is_allowed_to_be_unenforced_is_told(shared: Shared, api: Api) -> None:
    before = shared.service.snapshot().cache.unenforced
    schema = {"type": "object", "properties": {"secret": {"type": "string", "pattern": "(?<=a)b"}}}
    spec = json.dumps(schema)
    asked = Prepare(id=1001, kind="json", spec=spec, timeout_s=60, unsupported_keywords="Allow")
    refused = await api.ask(msgspec.structs.replace(asked, id=1002, unsupported_keywords=None))
    assert isinstance(refused, Refused)
    assert (refused.code, refused.path) == ("grammar_unsupported", "$.properties.secret.pattern")
    for number in (1003, 1004):
        allowed = await api.ask(msgspec.structs.replace(asked, id=number))
        assert isinstance(allowed, Prepared)
        assert allowed.unenforced == ["$.properties.secret.pattern"]
    assert shared.service.snapshot().cache.unenforced == before + 2

    prepared = shared.spans.named("grammar.prepare")
    told = [attributes(span).get("guidedmodel.grammar.unenforced") for span in prepared]
    assert told == [None, "pattern", "pattern"]
    # A name of a client's is in the answer to the client alone.
    assert "secret" not in str([attributes(span) for span in shared.spans.finished])


async def test_the_span_of_a_compile_says_how_it_ended(shared: Shared, api: Api) -> None:
    late = await api.prepare("regex", grammars.endless_regex(3), backend="xgrammar", timeout_s=1)
    number, _answer = api.begin("regex", grammars.endless_regex(4), backend="xgrammar")
    assert isinstance(await api.prepare("choice", '["after"]'), Prepared)
    api.release(number)
    await until(lambda: len(shared.spans.named("grammar.prepare")) == 3)

    ends = list(map(error_code, shared.spans.named("grammar.compile")))
    # The worker that it needs may come late on a busy machine.
    assert late.code in {"grammar_compile_timeout", "grammar_service_unavailable"}
    assert ends == [late.code, "", "cancelled"]
    assert list(map(error_code, shared.spans.named("grammar.prepare"))) == ends
