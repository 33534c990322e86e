"""A short run of `make chaos-grammar` on the pod that other tests share; its times are the long run's."""

import asyncio

import httpx
import pytest

from support.chaos import phases, surroundings
from support.chaos.benign import TIMEOUT_S, Load
from support.chaos.staging import Report, Setting
from support.pod import COMPILE_DEADLINE_S, Pod

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


async def _run(pod: Pod) -> list[Report]:
    async with httpx.AsyncClient(base_url=pod.url, timeout=TIMEOUT_S) as client:
        setting = Setting(pod, client, Load(client, 3), COMPILE_DEADLINE_S, 0, has_small_file_systems=False)
        await phases.warm(setting)
        quiet, quiet_p99_s = await phases.quiet(setting, 2)
        signals = {"SIGKILL": 1, "SIGSEGV": 1, "SIGSTOP": 1}
        return [
            quiet,
            await phases.workers(setting, 10, quiet_p99_s, signals),  # type: ignore[arg-type]  # its literals
            await phases.service(setting, 1),
            await surroundings.surroundings(setting, hung_s=2),
        ]


def test_no_fault_costs_a_benign_request_or_leaves_anything_behind(pod: Pod) -> None:
    reports = asyncio.run(_run(pod))
    assert not [broken for report in reports for broken in report.broken]
