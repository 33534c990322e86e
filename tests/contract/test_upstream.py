"""The faults of vLLM in docs/upstream, in the installed vLLM and in one with the patch to send."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from guided_contract.compatibility import SUPPORTED_VLLM, minor_of
from guided_engine.compat import cpu
from guided_engine.versions import installed_vllm

_NEWEST = minor_of(SUPPORTED_VLLM[-1])
pytestmark = pytest.mark.skipif(
    minor_of(installed_vllm() or "") != _NEWEST, reason=f"they would be sent to {_NEWEST}"
)
_FOUND = importlib.util.find_spec("vllm")  # to import it takes seconds
assert _FOUND is not None
INSTALLED = Path(str(_FOUND.origin)).parent
FAULTS = Path(__file__).parents[2] / "docs/upstream"


def reproduced(patch: Path, *patched: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, patched))}
    command = [sys.executable, str(patch.with_suffix(".py"))]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("patch", sorted(FAULTS.glob("*.patch")), ids=lambda patch: patch.stem)
def test_a_fault_is_there_and_goes_with_its_patch(patch: Path, tmp_path: Path) -> None:
    """Where the first half fails, vLLM has mended it: patch, reproducer and the ledger's code can go."""
    assert any(patch.match(entry.upstream) for entry in cpu.ENTRIES)
    stock = reproduced(patch)
    assert stock.returncode == 1, stock.stderr
    assert "Traceback" not in stock.stderr  # else another fault ended it
    shutil.copytree(INSTALLED, tmp_path / "vllm", copy_function=os.symlink)
    for changed in re.findall("(?m)^--- a/(.+)$", patch.read_text()):
        (tmp_path / changed).unlink()
        shutil.copy(INSTALLED.parent / changed, tmp_path / changed)
    subprocess.run(["git", "apply", str(patch)], check=True, cwd=tmp_path)
    patched = reproduced(patch, tmp_path)
    assert patched.returncode == 0, patched.stderr
