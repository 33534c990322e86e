"""What the service tells of a grammar: its spans, and what is counted."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from guided_contract import trace_context
from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.wire import Prepare, Prepared, Refused
from support import grammars
from support import service as service_processes
from support.service import serving
from support.sidecar import Api, Rank, busy_worker, kill, until
from support.spans import MemorySpans, attributes, error_code, parent_id, span_id, trace_id

PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60))  # these machines can be busy
TRACEPARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


async def test_what_was_asked_for_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving(tmp_path, monkeypatch, guided_decoding=PATIENT) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        spec = grammars.slow_regex(200)
        both = [api.begin("regex", spec, backend="xgrammar")[1] for _ in range(2)]
        await asyncio.gather(*both)
        await api.prepare("regex", spec, backend="xgrammar")
        for _ in range(2):
            await api.prepare("json", '{"type": "nonsense"}')
        await api.prepare("json", "{")
        number, _answer = api.begin("regex", grammars.endless_regex(1), backend="xgrammar")
        await until(lambda: service.snapshot().workers.busy == 1)
        api.release(number)
        _, crashed = api.begin("regex", grammars.endless_regex(2), backend="xgrammar")
        for _ in range(2):
            kill(await busy_worker(service_processes))
        assert isinstance(await crashed, Refused)

        now = service.snapshot()
        assert now.cache.answers == {"miss": 5, "joined": 1, "hit": 1, "refused": 1}
        assert now.workers.restarts == {"cancelled": 1, "crashed": 2}
        assert now.cache.entries == 1
        assert now.cache.leases == 3
        assert now.cache.leased_bytes == now.cache.size_bytes > 0
        assert (now.workers.busy, now.workers.queued) == (0, 0)
        assert now.workers.forks >= 2


LOOKBEHIND = json.dumps(
    {"type": "object", "properties": {"secret": {"type": "string", "pattern": "(?<=a)b"}}}
)


async def test_what_is_allowed_to_be_unenforced_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = MemorySpans()
    async with (
        serving(tmp_path, monkeypatch, spans=spans, guided_decoding=PATIENT) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        asked = Prepare(id=1, kind="json", spec=LOOKBEHIND, timeout_s=60, unsupported_keywords="Allow")
        refused = await api.ask(msgspec.structs.replace(asked, id=2, unsupported_keywords=None))
        assert isinstance(refused, Refused)
        assert (refused.code, refused.path) == ("grammar_unsupported", "$.properties.secret.pattern")
        assert service.snapshot().cache.unenforced == 0
        for number in (3, 4):
            allowed = await api.ask(msgspec.structs.replace(asked, id=number))
            assert isinstance(allowed, Prepared)
            assert allowed.unenforced == ["$.properties.secret.pattern"]
        assert service.snapshot().cache.unenforced == 2

    told = [attributes(span).get("guidedmodel.grammar.unenforced") for span in spans.named("grammar.prepare")]
    assert told == [None, "pattern", "pattern"]
    # A name of a client's is in the answer to the client alone.
    assert "secret" not in str([attributes(span) for span in spans.finished])


async def test_the_spans_of_a_grammar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = MemorySpans()
    async with (
        serving(tmp_path, monkeypatch, spans=spans, tensor_parallel=2, guided_decoding=PATIENT) as (_, pod),
        Rank.connected(pod, 0),
        Rank.connected(pod, 1),
        Api.connected(pod) as api,
    ):
        trace = {"traceparent": TRACEPARENT, "tracestate": "a=b"}
        specs = (grammars.PERSON, grammars.PERSON, '{"type": "nonsense"}')
        prepared, *_ = [
            await api.ask(Prepare(id=number, kind="json", spec=spec, timeout_s=60, **trace))
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
    assert {attributes(span)["guidedmodel.rank"] for span in loads} == {0, 1}
    assert all(span.end_time - span.start_time == 1_000_000 for span in loads)
    assert attributes(compiled)["guidedmodel.grammar.backend"] == prepared.backend
    assert not any("name" in str(value) for span in spans.finished for value in attributes(span).values())


async def test_the_span_of_a_compile_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = MemorySpans()
    async with (
        serving(tmp_path, monkeypatch, spans=spans, guided_decoding=PATIENT) as (_, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        late = await api.prepare("regex", grammars.endless_regex(1), backend="xgrammar", timeout_s=1)
        number, _answer = api.begin("regex", grammars.endless_regex(2), backend="xgrammar")
        assert isinstance(await api.prepare("choice", '["after"]'), Prepared)
        api.release(number)
        await until(lambda: len(spans.named("grammar.prepare")) == 3)

    ends = list(map(error_code, spans.named("grammar.compile")))
    # The worker that it needs may come late on a busy machine.
    assert late.code in {"grammar_compile_timeout", "grammar_service_unavailable"}
    assert ends == [late.code, "", "cancelled"]
    assert list(map(error_code, spans.named("grammar.prepare"))) == ends
