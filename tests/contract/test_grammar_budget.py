"""How many deaths of grammar workers are borne, and whom they count against."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.wire import Prepared, Refused
from support import grammars
from support.service import serving, workers
from support.sidecar import Api, Rank, busy_worker, kill, until

# These machines can be busy.
PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60, memory_bytes=96 << 20))


class Here:
    """The workers below this process, for `busy_worker`."""

    @staticmethod
    def workers() -> set[int]:
        return workers()


async def test_many_deaths_in_a_row_refuse_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"most_deaths": 3, "restart_delay_s": 2, "most_restart_delay_s": 6}
    async with (
        serving(tmp_path, monkeypatch, settings=few, guided_decoding=PATIENT) as (service, pod),
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

        while isinstance(refused, Refused):  # also where the first new worker was killed as it was forked
            await until(lambda: not service.snapshot().exhausted)
            refused = await api.prepare("choice", '["new"]')
        assert service.snapshot().workers.restarts["idle"] >= 3


async def test_grammars_that_crash_workers_count_against_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five such schemas once took the grammar service from everybody for minutes."""
    few = {"most_deaths": 2, "restart_delay_s": 0.01}
    async with (
        serving(tmp_path, monkeypatch, settings=few, guided_decoding=PATIENT) as (service, pod),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        for number in range(2):
            _, answer = api.begin("regex", grammars.endless_regex(number), backend="xgrammar")
            for _ in range(2):
                kill(await busy_worker(Here))
            refused = await answer
            assert isinstance(refused, Refused)
            assert refused.code == "grammar_compile_crashed"
            assert isinstance(await api.prepare("choice", f'["between {number}"]'), Prepared)
        now = service.snapshot()
        assert not now.exhausted
        assert now.workers.restarts["crashed"] == 4
