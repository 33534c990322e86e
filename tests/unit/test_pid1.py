"""A container's first process has to hear a TERM that comes while it still imports what it needs."""

import subprocess
import sys

import pytest

from guided_contract.pid1 import ENDED_BY_TERM

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


@pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("guided_engine.launcher", "asyncio"),
        ("guided_sidecar", "guided_sidecar.supervisor"),
        ("guided_operator", "aiohttp"),
    ],
)
def test_a_term_during_the_imports_ends_it(module: str, slow: str) -> None:
    code = STARTS.format(module=module, slow=slow)
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True)
    assert done.returncode == ENDED_BY_TERM, done.stderr.decode()
