"""A service and its real workers: their limits, what is counted, and the spans of a grammar."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from guided_contract import trace_context
from guided_contract.config import CompileConfig, GuidedDecodingConfig, PodConfig
from guided_contract.wire import Prepare, Prepared, Refused
from guided_sidecar.settings import Settings
from guided_sidecar.socket.grammar_service import GrammarService
from support import grammars
from support import service as service_processes
from support.service import serving, workers
from support.sidecar import Api, Rank, busy_worker, kill, until
from support.spans import MemorySpans, attributes, error_code, parent_id, span_id, trace_id

pytestmark = pytest.mark.asyncio(loop_scope="module")
TRACEPARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
    spans = MemorySpans()
    with pytest.MonkeyPatch.context() as patch:
        serves = serving(tmp_path_factory.mktemp("run"), patch, spans=spans, guided_decoding=PATIENT)
        async with serves as (service, pod):
            yield Shared(service, pod, spans)


@pytest_asyncio.fixture(loop_scope="module")
async def shared(started: Shared) -> Shared:
    await until(lambda: started.service.snapshot().workers.idle == 2, 60)
    started.spans.finished.clear()
    started.before = Counter()
    started.before = started.told()
    return started


@pytest_asyncio.fixture(loop_scope="module")
async def api(shared: Shared) -> AsyncIterator[Api]:
    async with Rank.connected(shared.pod), Api.connected(shared.pod) as connected:
        yield connected


async def test_a_compiling_worker_is_limited(api: Api) -> None:
    api.begin("regex", grammars.endless_regex(), backend="xgrammar")
    await until(lambda: bool(_compiling()))
    limited = _limits(_compiling()[0])
    assert limited["core"] == ["0", "0"]
    memory_bytes = PATIENT.compile.memory_bytes
    assert memory_bytes < int(limited["address"][0]) < memory_bytes + (1 << 30)


async def test_a_compile_over_its_memory_limit_is_refused_as_that(shared: Shared, api: Api) -> None:
    before = workers()
    refused = await api.prepare("regex", grammars.hungry_regex(), backend="xgrammar")
    failure = shared.service.snapshot().workers.last_failure

    assert isinstance(refused, Refused)
    assert refused.code == "grammar_compile_memory", refused.message
    assert failure is not None
    assert failure.code == "grammar_compile_memory"
    assert isinstance(await api.prepare("choice", '["small"]'), Prepared)
    assert before - workers(), "the worker whose memory ran out still serves"
    assert shared.told()["memory"] == 1


async def test_a_worker_is_replaced_after_so_many_jobs_and_when_its_cache_would_hide_what_a_grammar_costs(
    shared: Shared, api: Api
) -> None:
    before = workers()
    jobs = 2 * Settings(pod=shared.pod).jobs_per_worker + 1
    asked = (api.prepare("choice", json.dumps([f"job {number}"])) for number in range(jobs))
    assert all(isinstance(answer, Prepared) for answer in await asyncio.gather(*asked))
    await until(lambda: bool(before - workers()))

    before = workers()
    slow = await api.prepare("regex", grammars.slow_regex(400), backend="xgrammar")
    assert isinstance(slow, Prepared), slow
    await until(lambda: bool(before - workers()))
    assert shared.told() == {"miss": jobs + 1}, "no worker was lost"


async def test_what_was_asked_for_is_counted(shared: Shared, api: Api) -> None:
    spec = grammars.slow_regex(200)
    await asyncio.gather(*[api.begin("regex", spec, backend="xgrammar")[1] for _ in range(2)])
    await api.prepare("regex", spec, backend="xgrammar")
    for _ in range(2):
        await api.prepare("json", '{"type": "nonsense"}')
    await api.prepare("json", "{")
    number, _answer = api.begin("regex", grammars.endless_regex(1), backend="xgrammar")
    await until(lambda: shared.service.snapshot().workers.busy == 1)
    api.release(number)
    _, crashed = api.begin("regex", grammars.endless_regex(2), backend="xgrammar")
    for _ in range(2):
        kill(await busy_worker(service_processes))
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


async def test_the_spans_of_a_grammar(shared: Shared, api: Api) -> None:
    trace = {"traceparent": TRACEPARENT, "tracestate": "a=b"}
    specs = (grammars.PERSON, grammars.PERSON, '{"type": "nonsense", "description": "seen first"}')
    spans = shared.spans
    prepared, *_ = [
        await api.ask(Prepare(id=2000 + number, kind="json", spec=spec, timeout_s=60, **trace))
        for number, spec in enumerate(specs)
    ]

    assert isinstance(prepared, Prepared)
    first, hit, bad = spans.named("grammar.prepare")
    compiled, failed = spans.named("grammar.compile")
    loads = spans.named("grammar.load")
    root = trace_context.parse(TRACEPARENT)
    assert root is not None
    assert {trace_id(span) for span in spans.finished} == {root.trace_id}
    assert {span.context.trace_state.to_header() for span in spans.finished} == {"a=b"}
    assert {parent_id(span) for span in (first, hit, bad)} == {root.span_id}
    assert {span.parent.is_remote for span in (first, hit, bad)} == {True}
    assert {span.parent.is_remote for span in (compiled, failed, *loads)} == {False}
    assert parent_id(compiled) == span_id(first)
    assert parent_id(failed) == span_id(bad)
    assert [attributes(span)["guidedmodel.grammar.cache"] for span in (first, hit, bad)] == [
        "miss",
        "hit",
        "miss",
    ]
    assert (error_code(bad), error_code(failed)) == ("grammar_invalid", "grammar_invalid")
    assert {parent_id(span) for span in loads} == {span_id(first)}
    assert [attributes(span)["guidedmodel.rank"] for span in loads] == [0]
    assert all(span.end_time - span.start_time == 1_000_000 for span in loads)
    assert attributes(compiled)["guidedmodel.grammar.backend"] == prepared.backend
    assert not any("name" in str(value) for span in spans.finished for value in attributes(span).values())


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


def _compiling() -> list[int]:
    return [pid for pid in workers() if _limits(pid)["address"][0] != "unlimited"]


def _limits(pid: int) -> dict[str, list[str]]:
    """Return soft and hard limits of address space and core dumps."""
    rows = Path(f"/proc/{pid}/limits").read_text().splitlines()
    names = {"address": "Max address space", "core": "Max core file size"}
    found = {name: next(row for row in rows if row.startswith(title)) for name, title in names.items()}
    return {name: row.removeprefix(names[name]).split()[:2] for name, row in found.items()}
