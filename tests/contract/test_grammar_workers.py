"""Limits of grammar workers, the number of deaths that is borne."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from guided_contract.config import CompileConfig, GuidedDecodingConfig, PodConfig
from guided_contract.wire import Prepared, Refused
from guided_sidecar.settings import Settings
from guided_sidecar.socket.grammar_service import GrammarService
from support import grammars
from support.service import serving, workers
from support.sidecar import Api, Rank, until

# These machines can be busy.
PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60, memory_bytes=96 << 20))


@dataclass
class Shared:
    """A service that several tests use."""

    service: GrammarService
    pod: PodConfig
    lost_before: Counter[str] = field(default_factory=Counter)

    def lost(self) -> dict[str, int]:
        """Return the workers that the running test has lost, by why."""
        return dict(Counter(self.service.snapshot().workers.restarts) - self.lost_before)

    async def rested(self) -> "Shared":
        await until(lambda: self.service.snapshot().workers.idle == 2, 60)
        self.lost_before = Counter(self.service.snapshot().workers.restarts)
        return self


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def started(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Shared]:
    with pytest.MonkeyPatch.context() as patch:
        serves = serving(tmp_path_factory.mktemp("run"), patch, guided_decoding=request.cls.guided)
        async with serves as (service, pod):
            yield Shared(service, pod)


@pytest_asyncio.fixture(loop_scope="class")
async def shared(started: Shared) -> Shared:
    return await started.rested()


@pytest.mark.asyncio(loop_scope="class")
class TestPatient:
    """One service for all of them, as to start one takes seconds of CPU."""

    guided = PATIENT

    async def test_a_compiling_worker_is_limited(self, shared: Shared) -> None:
        async with Rank.connected(shared.pod), Api.connected(shared.pod) as api:
            api.begin("regex", grammars.endless_regex(), backend="xgrammar")
            await until(lambda: bool(_compiling()))
            limited = _limits(_compiling()[0])
            assert limited["core"] == ["0", "0"]
            memory_bytes = PATIENT.compile.memory_bytes
            assert memory_bytes < int(limited["address"][0]) < memory_bytes + (1 << 30)

    async def test_a_compile_over_its_memory_limit_is_refused_as_that(self, shared: Shared) -> None:
        async with Rank.connected(shared.pod), Api.connected(shared.pod) as api:
            before = workers()
            refused = await api.prepare("regex", grammars.hungry_regex(), backend="xgrammar")
            failure = shared.service.snapshot().workers.last_failure

            assert isinstance(refused, Refused)
            assert refused.code == "grammar_compile_memory", refused.message
            assert failure is not None
            assert failure.code == "grammar_compile_memory"
            assert isinstance(await api.prepare("choice", '["small"]'), Prepared)
            assert before - workers(), "the worker whose memory ran out still serves"
            assert shared.lost() == {"memory": 1}

    async def test_a_worker_is_replaced_after_so_many_jobs(self, shared: Shared) -> None:
        async with Rank.connected(shared.pod), Api.connected(shared.pod) as api:
            before = workers()
            jobs = 2 * Settings(pod=shared.pod).jobs_per_worker + 1
            answers = await asyncio.gather(
                *(api.prepare("choice", json.dumps([f"job {number}"])) for number in range(jobs))
            )

            assert all(isinstance(answer, Prepared) for answer in answers)
            await until(lambda: bool(before - workers()))
            assert not shared.lost()

    async def test_a_worker_goes_whose_cache_would_hide_what_a_grammar_costs(self, shared: Shared) -> None:
        async with Rank.connected(shared.pod), Api.connected(shared.pod) as api:
            before = workers()
            slow = await api.prepare("regex", grammars.slow_regex(400), backend="xgrammar")
            assert isinstance(slow, Prepared), slow
            await until(lambda: bool(before - workers()))
            assert not shared.lost()


def _compiling() -> list[int]:
    return [pid for pid in workers() if _limits(pid)["address"][0] != "unlimited"]


def _limits(pid: int) -> dict[str, list[str]]:
    """Return soft and hard limits of address space and core dumps."""
    rows = Path(f"/proc/{pid}/limits").read_text().splitlines()
    names = {"address": "Max address space", "core": "Max core file size"}
    found = {name: next(row for row in rows if row.startswith(title)) for name, title in names.items()}
    return {name: row.removeprefix(names[name]).split()[:2] for name, row in found.items()}
