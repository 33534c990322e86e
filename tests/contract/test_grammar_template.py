"""The template of grammar workers, alone: its forks."""

from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path

import pytest
import pytest_asyncio

from guided_contract import names
from guided_contract.backends import BACKENDS
from guided_sidecar.grammar.pool.worker_process import Template
from guided_sidecar.grammar.worker_messages import Compiled, Done, Job
from support import grammars
from support.engine import pod_config, write_config

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def template(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Template]:
    """A template alone, whose workers nobody watches; to start one takes seconds of CPU."""
    pod = pod_config(tmp_path_factory.mktemp("template"))
    started = Template(lambda _worker: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(names.ENV_CONFIG, str(write_config(pod)))
        facts = await started.start(60)
    # Of others than the measured ones keywords are not relied upon: test_sidecar_grammar_gaps.py.
    assert facts.versions == {
        one.distribution: metadata.version(one.distribution) for one in BACKENDS.values()
    }
    yield started
    await started.stop()


async def test_a_fork_imports_nothing(template: Template) -> None:
    made = [await template.fork(5) for _ in range(2)]
    job = Job(
        key="k",
        kind="json",
        spec=grammars.PERSON,
        backends=["xgrammar", "guidance"],
        timeout_s=60,
        memory_bytes=1 << 30,
    )
    told: list[Compiled] = []
    done = await made[0].run(job, told.append)
    assert isinstance(done, Done)
    assert {one.done.spec for one in told} == {done.spec}, "what ranks may load comes before the proof"
    (parent,) = {_parent(worker.pid) for worker in made}
    assert _libraries(made[0].pid) == _libraries(parent)
    for worker in made:
        await worker.kill()
        worker.close()


def _libraries(pid: int) -> set[str]:
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {path for line in maps if (path := line.split()[-1]).endswith(".so") or ".so." in path}


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
