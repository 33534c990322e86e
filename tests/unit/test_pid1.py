"""A container's first process has to hear a TERM that comes while it still imports what it needs.

And it raises the limit of open files before it opens many.
"""

import subprocess
import sys

import pytest

from guided_contract.processes import ENDED_BY_TERM

# As the first process of a container would: what it has no handler for never reaches it.
STARTS = """
import os, runpy, signal, sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)

class Told:
    def find_spec(self, name, *_):
        if name == {slow!r}:
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Told())
runpy.run_module({module!r}, run_name="__main__")
"""

# With few files, as a container runtime begins; tells what it may open once it imports.
OPENS = """
import os, resource, runpy, sys

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

class Told:
    def find_spec(self, name, *_):
        if name == {slow!r}:
            os._exit(0 if resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard) else 1)

sys.meta_path.insert(0, Told())
runpy.run_module({module!r}, run_name="__main__")
"""

FIRST = pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("guided_engine.launcher", "asyncio"),
        ("guided_sidecar", "guided_sidecar.supervisor"),
        ("guided_operator", "aiohttp"),
    ],
)


@FIRST
def test_a_term_during_the_imports_ends_it(module: str, slow: str) -> None:
    code = STARTS.format(module=module, slow=slow)
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True)
    assert done.returncode == ENDED_BY_TERM, done.stderr.decode()


@FIRST
def test_it_may_open_as_many_files_as_it_could(module: str, slow: str) -> None:
    code = OPENS.format(module=module, slow=slow)
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
