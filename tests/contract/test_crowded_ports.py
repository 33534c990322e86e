"""A real sidecar while strangers crowd its ports: probes are answered and grammars compile as ever."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from guided_contract.wire import Prepared
from support import crowd
from support.engine import pod_config
from support.sidecar import Api, Rank, Sidecar


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    with crowd.few_files():
        started = Sidecar.start(pod_config(tmp_path_factory.mktemp("sidecar")))
    try:
        yield started
    finally:
        started.stop()


def test_file_limits_are_raised(sidecar: Sidecar) -> None:
    for pid in (sidecar.process.pid, sidecar.service_pid()):
        (line,) = [
            line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in line
        ]
        soft, hard = line.split()[3:5]
        assert soft == hard


async def test_half_open_connections_and_scrapes_change_nothing(sidecar: Sidecar) -> None:
    port = sidecar.pod.ports.sidecar
    async with Rank.connected(sidecar.pod), Api.connected(sidecar.pod) as api:
        async with asyncio.timeout(120):  # who asks before the template is there is to come again
            while not isinstance(await api.prepare("choice", '["warm"]'), Prepared):
                pass
        async with crowd.half_open(port):
            scraping = asyncio.create_task(crowd.scraped(port, 1000))
            for number in range(10):
                assert await crowd.asked(port, "/startupz") == 200
                assert await crowd.asked(port, "/readyz") == 503  # there is no engine
                schema = json.dumps({"type": "string", "maxLength": 10 + number})
                assert isinstance(await api.prepare("json", schema), Prepared)
            assert set(await scraping) == {200}
    assert "Traceback" not in sidecar.log()
