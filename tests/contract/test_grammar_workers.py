"""Limits of grammar workers, the number of deaths that is borne."""

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guided_contract import names
from guided_contract.config import CompileConfig, GuidedDecodingConfig, RestartConfig
from guided_contract.wire import Prepared, Refused
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.jobs import Done, Job
from guided_sidecar.grammar.process import Template, WorkerDiedError
from guided_sidecar.settings import Settings
from support import grammars
from support.engine import pod_config, write_config
from support.service import serving, workers
from support.sidecar import Api, Rank, kill, until

PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60))  # these machines can be busy


async def test_a_compile_over_its_memory_limit_is_refused_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guided = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60, memory_bytes=96 << 20))
    async with (
        serving(tmp_path, monkeypatch, guided_decoding=guided) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        before = workers()
        refused = await api.prepare("regex", grammars.hungry_regex())
        failure = service.snapshot().workers.last_failure

        assert isinstance(refused, Refused)
        assert refused.code == "grammar_compile_memory", refused.message
        assert failure is not None
        assert failure.code == "grammar_compile_memory"
        assert isinstance(await api.prepare("choice", '["small"]'), Prepared)
        assert before - workers(), "the worker whose memory ran out still serves"
        assert service.snapshot().workers.restarts == {"memory": 1}


async def test_a_compiling_worker_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving(tmp_path, monkeypatch, guided_decoding=PATIENT) as (_, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        api.begin("regex", grammars.endless_regex())
        limited: list[dict[str, list[str]]] = []

        def compiling() -> bool:
            limited[:] = [found for pid in workers() if (found := _limits(pid))["address"][0] != "unlimited"]
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
        serving(tmp_path, monkeypatch, restart=restart, guided_decoding=PATIENT) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        assert isinstance(await api.prepare("choice", '["known"]'), Prepared)
        while not service.snapshot().exhausted or service.snapshot().workers.ready:
            await asyncio.sleep(0.01)
            for pid in workers():
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
        assert service.snapshot().workers.restarts["idle"] >= 3


async def test_a_grammar_that_keeps_failing_is_not_tried_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guided = GuidedDecodingConfig(compile=CompileConfig(timeout_s=1))
    async with (
        serving(tmp_path, monkeypatch, guided_decoding=guided) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        for _ in range(3):
            refused = await api.prepare("regex", grammars.endless_regex())
            assert isinstance(refused, Refused)
            assert refused.code == "grammar_compile_timeout"
        restarts = service.snapshot().workers.restarts
        again = await api.prepare("regex", grammars.endless_regex())

        assert isinstance(again, Refused)
        assert again.code == "grammar_compile_timeout"
        assert service.snapshot().workers.restarts == restarts == {"deadline": 3}
        assert service.snapshot().quarantined == 1


async def test_unused_grammars_are_unloaded_and_leased_ones_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving(tmp_path, monkeypatch, settings={"cache_entries": 2}, guided_decoding=PATIENT) as (_, pod),
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
        serving(tmp_path, monkeypatch, guided_decoding=PATIENT) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        before = workers()
        jobs = 2 * Settings(pod=pod).jobs_per_worker + 1
        answers = await asyncio.gather(
            *(api.prepare("choice", json.dumps([f"job {number}"])) for number in range(jobs))
        )

        assert all(isinstance(answer, Prepared) for answer in answers)
        await until(lambda: bool(before - workers()))
        assert not service.snapshot().workers.restarts


async def test_a_spare_is_at_hand_again_after_a_compile_that_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guided = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60, workers=1))
    async with (
        serving(tmp_path, monkeypatch, guided_decoding=guided) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        number, _ = api.begin("regex", grammars.endless_regex())
        await until(lambda: service.snapshot().workers.busy == 1)
        api.release(number)
        await until(lambda: service.snapshot().workers.restarts == {"cancelled": 1})
        await until(lambda: service.snapshot().workers.idle == 2)


def _limits(pid: int) -> dict[str, list[str]]:
    """Return soft and hard limits of address space, core dumps and CPU seconds."""
    rows = Path(f"/proc/{pid}/limits").read_text().splitlines()
    names = {"address": "Max address space", "core": "Max core file size", "cpu": "Max cpu time"}
    found = {name: next(row for row in rows if row.startswith(title)) for name, title in names.items()}
    return {name: row.removeprefix(names[name]).split()[:2] for name, row in found.items()}


@pytest.fixture
async def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Template]:
    """A template alone, whose workers nobody watches."""
    pod = pod_config(tmp_path)
    monkeypatch.setenv(names.ENV_CONFIG, str(write_config(pod)))
    artifacts.reset(pod.grammars_folder)
    started = Template(lambda _worker: None)
    await started.start(60)
    yield started
    await started.stop()


async def test_a_fork_is_quick_and_imports_nothing(template: Template) -> None:
    took_s, made = [], []
    for _ in range(9):
        begin = time.monotonic()
        made.append(await template.fork(5))
        took_s.append(time.monotonic() - begin)
    assert statistics.median(took_s) < 0.3

    job = Job(
        key="k",
        kind="json",
        spec=grammars.PERSON,
        backends=["xgrammar", "guidance"],
        any_whitespace=True,
        timeout_s=60,
        memory_bytes=1 << 30,
    )
    assert isinstance(await made[0].run(job), Done)
    (parent,) = {_parent(worker.pid) for worker in made}
    assert _libraries(made[0].pid) == _libraries(parent)
    for worker in made:
        await worker.kill()
        worker.close()


async def test_a_worker_that_nobody_watches_is_ended_by_the_kernel(template: Template) -> None:
    """The deadline is the service's; should that be stopped, the CPU seconds of a job are the kernel's."""
    worker = await template.fork(5)
    job = Job(
        key="k",
        kind="regex",
        spec=grammars.endless_regex(),
        backends=["xgrammar"],
        any_whitespace=True,
        timeout_s=0.5,
        memory_bytes=1 << 30,
    )
    async with asyncio.timeout(60):
        with pytest.raises(WorkerDiedError, match="SIGXCPU"):
            await worker.run(job)
    worker.close()


def _libraries(pid: int) -> set[str]:
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {path for line in maps if (path := line.split()[-1]).endswith(".so") or ".so." in path}


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
