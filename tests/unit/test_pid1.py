"""A container's first process has to hear a TERM that comes while it still imports what it needs.

And it raises the limit of open files before it opens many.
"""

import subprocess
import sys

import pytest

from guided_contract.processes import ENDED_BY_TERM

# As a container begins: with few files, and deaf to what its first process has no handler for.
STARTS = """
import os, resource, runpy, signal, sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

class Told:
    def find_spec(self, name, *_):
        if name == {slow!r}:
            if resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard):
                os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Told())
runpy.run_module({module!r}, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("guided_engine.launcher", "asyncio"),
        ("guided_sidecar", "guided_sidecar.supervisor"),
        ("guided_operator", "aiohttp"),
    ],
)
def test_during_the_imports_a_term_ends_it_and_it_may_open_as_many_files_as_it_could(
    module: str, slow: str
) -> None:
    code = STARTS.format(module=module, slow=slow)
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True)
    assert done.returncode == ENDED_BY_TERM, done.stderr.decode()
