"""What a grammar service keeps on disk, its successor need not compile: real processes, the real socket."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from guided_contract.wire import Prepared, Refused
from support import grammars
from support.engine import pod_config
from support.sidecar import Api, Client, Rank, Sidecar, kill, until

WARM_S = 60.0


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    (tmp_path / "run").mkdir()
    started = Sidecar.start(pod_config(tmp_path / "run", grammar_cache_dir=str(tmp_path / "disk")))
    yield started
    started.stop()


async def _stored(folder: Path, count: int) -> list[Path]:
    await until(lambda: len(_files(folder)) == count, 10)
    return _files(folder)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []


async def _warm(api: Api) -> None:
    """Wait for the template and its workers, which a new service refuses requests for meanwhile."""
    async with asyncio.timeout(WARM_S):
        while not isinstance(await api.prepare("choice", '["warm"]'), Prepared):
            pass


async def test_a_new_service_takes_grammars_from_disk_and_compiles_the_spoilt_ones(
    sidecar: Sidecar, tmp_path: Path
) -> None:
    schemas = {name: json.dumps({"type": "object", "title": name}) for name in ("kept", "spoilt", "new")}
    specs = {
        "xgrammar": ("json", grammars.PERSON),
        "guidance": ("json", grammars.BOUNDED),
        "spoilt": ("json", schemas["spoilt"]),
    }
    keys = {}
    async with Rank.connected(sidecar.pod), Api.connected(sidecar.pod) as api:
        await _warm(api)
        for name, (kind, spec) in specs.items():
            backend = "xgrammar" if name == "xgrammar" else None
            answer = await api.prepare(kind, spec, backend=backend)  # type: ignore[arg-type]
            assert isinstance(answer, Prepared), answer
            keys[name] = answer.key
            assert name in {answer.backend, "spoilt"}
        files = await _stored(tmp_path / "disk", 4)
    spoilt = next(path for path in files if path.name == keys["spoilt"])
    before = spoilt.read_bytes()
    spoilt.write_bytes(before[:-3])

    service = sidecar.service_pid()
    assert service is not None
    kill(service)
    await until(lambda: sidecar.service_pid() not in (None, service))
    (await Client.reach(sidecar.pod)).close()

    async with Rank.connected(sidecar.pod) as rank, Api.connected(sidecar.pod) as api:
        await _warm(api)
        await until(lambda: len(sidecar.workers()) == 2, WARM_S)
        compilers = [sidecar.template_pid(), *sidecar.workers()]
        for pid in compilers:
            os.kill(pid, signal.SIGSTOP)  # type: ignore[arg-type]
        try:
            for name in ("xgrammar", "guidance"):
                backend = "xgrammar" if name == "xgrammar" else None
                answer = await api.prepare(*specs[name], backend=backend)  # type: ignore[arg-type]
                assert isinstance(answer, Prepared), answer
                assert answer.key == keys[name]
                assert any(load.key == answer.key for load in rank.loads)
            refused = await api.prepare("json", schemas["new"], timeout_s=1)
            assert isinstance(refused, Refused), "a new grammar needs a worker"
        finally:
            for pid in compilers:
                with contextlib.suppress(ProcessLookupError):  # the refused one's worker was killed
                    os.kill(pid, signal.SIGCONT)  # type: ignore[arg-type]
        answer = await api.prepare(*specs["spoilt"])  # type: ignore[arg-type]
        assert isinstance(answer, Prepared), answer
    await until(lambda: spoilt.exists() and spoilt.stat().st_size == len(before), 10)
