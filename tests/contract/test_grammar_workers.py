"""Limits of grammar workers, the number of deaths that is borne, and the spans of a compile."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guided_contract import names
from guided_contract.config import CompileConfig, GuidedDecodingConfig, PodConfig, RestartConfig
from guided_contract.wire import Prepared, Refused
from guided_sidecar.consensus import Consensus
from guided_sidecar.grammar_service import GrammarService
from guided_sidecar.settings import Settings
from guided_sidecar.telemetry.spans import MemorySpans, parse
from support import grammars
from support.engine import pod_config, write_config
from support.sidecar import Api, Rank, descendants, kill, until

PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60))  # these machines can be busy
TRACEPARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


@contextlib.asynccontextmanager
async def _serving(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spans: MemorySpans | None = None, **fields: object
) -> AsyncIterator[tuple[GrammarService, PodConfig]]:
    """Run a service in this process; its template and workers are processes as ever."""
    pod = pod_config(folder, **fields)
    monkeypatch.setenv(names.ENV_CONFIG, str(write_config(pod)))
    service = GrammarService(
        Settings(pod=pod, cache_entries=2), spans or MemorySpans(), Consensus(pod.guided_decoding, 1)
    )
    await service.start()
    try:
        await until(lambda: service.snapshot().workers_ready == 2, 60)
        yield service, pod
    finally:
        await service.stop()


def _workers() -> set[int]:
    """Return the grammar processes below this one, without the template, their parent."""
    mine = [pid for pid in descendants(_self()) if b"grammar.template" in _command(pid)]
    return {pid for pid in mine if any(pid in list(descendants(other))[1:] for other in mine)}


async def test_a_compile_over_its_memory_limit_is_refused_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guided = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60, memory_bytes=96 << 20))
    async with (
        _serving(tmp_path, monkeypatch, guided_decoding=guided) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        before = _workers()
        refused = await api.prepare("regex", grammars.hungry_regex())
        failure = service.snapshot().last_failure

        assert isinstance(refused, Refused)
        assert refused.code == "grammar_compile_memory", refused.message
        assert failure is not None
        assert failure.code == "grammar_compile_memory"
        assert isinstance(await api.prepare("choice", '["small"]'), Prepared)
        assert before - _workers(), "the worker whose memory ran out still serves"


async def test_a_compiling_worker_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        _serving(tmp_path, monkeypatch, guided_decoding=PATIENT) as (_, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        api.begin("regex", grammars.endless_regex())
        limited: list[dict[str, list[str]]] = []

        def compiling() -> bool:
            limited[:] = [found for pid in _workers() if (found := _limits(pid))["address"][0] != "unlimited"]
            return bool(limited)

        await until(compiling)
        assert limited[0]["core"] == ["0", "0"]
        assert limited[0]["cpu"][0].isdecimal()
        memory_bytes = PATIENT.compile.memory_bytes
        assert memory_bytes < int(limited[0]["address"][0]) < memory_bytes + (1 << 30)


async def test_a_spent_restart_budget_refuses_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart = RestartConfig(max_attempts=3, base_delay_s=0.01, reset_after_s=6)
    async with (
        _serving(tmp_path, monkeypatch, restart=restart, guided_decoding=PATIENT) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        assert isinstance(await api.prepare("choice", '["known"]'), Prepared)
        while not service.snapshot().exhausted or service.snapshot().workers_ready:
            await asyncio.sleep(0.01)
            for pid in _workers():
                with contextlib.suppress(ProcessLookupError):
                    kill(pid)
        refused = await api.prepare("choice", '["new"]')
        assert isinstance(refused, Refused)
        assert refused.code == "grammar_service_exhausted"
        assert refused.retry_after_s
        assert 0 < refused.retry_after_s <= 6
        assert isinstance(await api.prepare("choice", '["known"]'), Prepared)

        await until(lambda: not service.snapshot().exhausted)
        assert isinstance(await api.prepare("choice", '["new"]'), Prepared)
        assert service.snapshot().worker_restarts >= 3


async def test_a_grammar_that_keeps_failing_is_not_tried_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guided = GuidedDecodingConfig(compile=CompileConfig(timeout_s=1))
    async with (
        _serving(tmp_path, monkeypatch, guided_decoding=guided) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        for _ in range(3):
            refused = await api.prepare("regex", grammars.endless_regex())
            assert isinstance(refused, Refused)
            assert refused.code == "grammar_compile_timeout"
        restarts = service.snapshot().worker_restarts
        again = await api.prepare("regex", grammars.endless_regex())

        assert isinstance(again, Refused)
        assert again.code == "grammar_compile_timeout"
        assert service.snapshot().worker_restarts == restarts


async def test_the_spans_of_a_grammar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = MemorySpans()
    async with (
        _serving(tmp_path, monkeypatch, spans, tensor_parallel=2, guided_decoding=PATIENT) as (_, pod),
        Rank.connected(pod, 0),
        Rank.connected(pod, 1),
        Api.connected(pod) as api,
    ):
        prepared = await api.prepare("json", grammars.PERSON, traceparent=TRACEPARENT)
        await api.prepare("json", grammars.PERSON, traceparent=TRACEPARENT)
        await api.prepare("json", '{"type": "nonsense"}', traceparent=TRACEPARENT)

    assert isinstance(prepared, Prepared)
    first, hit, bad = spans.named("grammar.prepare")
    compiled, failed = spans.named("grammar.compile")
    loads = spans.named("grammar.load")
    root = parse(TRACEPARENT)
    assert root is not None
    assert {span.context.trace_id for span in spans.finished} == {root.trace_id}
    assert {span.parent_span_id for span in (first, hit, bad)} == {root.span_id}
    assert compiled.parent_span_id == first.context.span_id
    assert failed.parent_span_id == bad.context.span_id
    assert [span.attributes["guidedmodel.grammar.cache"] for span in (first, hit, bad)] == [
        "miss",
        "hit",
        "miss",
    ]
    assert (bad.error_code, failed.error_code) == ("grammar_invalid", "grammar_invalid")
    assert {span.parent_span_id for span in loads} == {first.context.span_id}
    assert {span.attributes["guidedmodel.rank"] for span in loads} == {0, 1}
    assert all(span.end_ns - span.start_ns == 1_000_000 for span in loads)
    assert compiled.attributes["guidedmodel.grammar.backend"] == prepared.backend
    assert not any("name" in str(value) for span in spans.finished for value in span.attributes.values())


async def test_the_span_of_a_compile_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = MemorySpans()
    async with (
        _serving(tmp_path, monkeypatch, spans, guided_decoding=PATIENT) as (_, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        await api.prepare("regex", grammars.endless_regex(1), timeout_s=1)
        number, _answer = api.begin("regex", grammars.endless_regex(2))
        assert isinstance(await api.prepare("choice", '["after"]'), Prepared)
        api.release(number)
        await until(lambda: len(spans.named("grammar.prepare")) == 3)

    ends = [span.error_code for span in spans.named("grammar.compile")]
    assert ends == ["grammar_compile_timeout", "", "cancelled"]
    assert [span.error_code for span in spans.named("grammar.prepare")] == ends


async def test_unused_grammars_are_unloaded_and_leased_ones_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        _serving(tmp_path, monkeypatch, guided_decoding=PATIENT) as (_, pod),
        Rank.connected(pod) as rank,
        Api.connected(pod) as api,
    ):
        kept = await api.prepare("choice", '["kept"]')
        assert isinstance(kept, Prepared)
        dropped = []
        for number in range(4):
            identity, answer = api.begin("choice", json.dumps([f"{number}"]))
            prepared = await answer
            assert isinstance(prepared, Prepared)
            dropped.append(prepared.key)
            api.release(identity)

        await until(lambda: len(rank.unloads) == 3)
        assert rank.unloads == dropped[:3]
        assert {path.name for path in pod.grammars_folder.iterdir()} == {kept.key, dropped[3]}


async def test_a_worker_is_replaced_after_so_many_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        _serving(tmp_path, monkeypatch, guided_decoding=PATIENT) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        before = _workers()
        jobs = 2 * Settings(pod=pod).jobs_per_worker + 1
        answers = await asyncio.gather(
            *(api.prepare("choice", json.dumps([f"job {number}"])) for number in range(jobs))
        )

        assert all(isinstance(answer, Prepared) for answer in answers)
        await until(lambda: bool(before - _workers()))
        assert service.snapshot().worker_restarts == 0


def _self() -> int:
    return int(Path("/proc/self").readlink().name)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _limits(pid: int) -> dict[str, list[str]]:
    """Return soft and hard limits of address space, core dumps and CPU seconds."""
    rows = Path(f"/proc/{pid}/limits").read_text().splitlines()
    names = {"address": "Max address space", "core": "Max core file size", "cpu": "Max cpu time"}
    found = {name: next(row for row in rows if row.startswith(title)) for name, title in names.items()}
    return {name: row.removeprefix(names[name]).split()[:2] for name, row in found.items()}
