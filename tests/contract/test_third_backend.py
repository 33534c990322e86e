"""A backend is a module and a line in a table: what follows from them, in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from guided_contract import backends

TESTS = Path(__file__).parents[1]
TABLE = "BACKENDS: Final[dict[str, Entry]] = {\n"
# What a release with it would have in guided_contract/backends.py; any distribution has a version.
LINE = '    "Fake": Entry("fake", "support.fake_backend", "pluggy"),\n'
# Every Python with this in its path takes the table of that release.
START_UP = """
import importlib.util, pathlib, sys
import guided_contract
at = pathlib.Path(__file__).with_name("backends.py")
spec = importlib.util.spec_from_file_location("guided_contract.backends", at)
module = sys.modules[spec.name] = guided_contract.backends = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a release that has the fake as a third backend."""
    source = Path(backends.__file__).read_text()
    assert TABLE in source
    (tmp_path / "backends.py").write_text(source.replace(TABLE, TABLE + LINE))
    (tmp_path / "sitecustomize.py").write_text(START_UP)
    path = [str(tmp_path), str(TESTS), str(TESTS.parent / "tools"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def test_a_third_backend_is_a_module_and_a_line(environment: dict[str, str], tmp_path: Path) -> None:
    """It compiles, proves, loads and masks; what it does not take goes on to another."""
    done = subprocess.run(
        [sys.executable, "-m", "support.third_backend", str(tmp_path / "pod")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "pod/found.json").read_text()) == {
        "choice": "fake",
        "source": ["no", "yes", "yesterday"],
        "masks": True,
        "json": "xgrammar",
        "versions": ["guidedmodel", "llguidance", "pluggy", "vllm", "xgrammar"],
        "crd": True,
    }
