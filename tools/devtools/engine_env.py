"""A stock engine environment: real vLLM for CPU, nothing of ours, as a vLLM image would hold."""

import subprocess
from pathlib import Path

from devtools import cache, golang

REQUIREMENTS = golang.TOOLS.parent / "requirements/engine-cpu.txt"
# Not a Python below root's home: a pod's user could not read it. The node's images have this one, too.
SYSTEM_PYTHON = Path("/usr/bin/python3")
INSTALL_TIMEOUT_S = 1800


def path() -> Path:
    """Return the virtual environment, readable by every user; built the first time (about 2 GB to download).

    Raises
    ------
    MissingToolError
        There is no system Python 3.11 or newer, or no uv.
    """
    version = _python_version()
    return cache.built("engine-env", [REQUIREMENTS, version], _build) / "venv"


def _python_version() -> str:
    if not SYSTEM_PYTHON.exists():
        raise golang.MissingToolError(f"{SYSTEM_PYTHON} is not there: apt-get install python3 python3-venv")
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    done = subprocess.run(  # noqa: S603 - a fixed program
        [SYSTEM_PYTHON, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    version = done.stdout.strip()
    if tuple(map(int, version.split("."))) < (3, 11):
        raise golang.MissingToolError(f"{SYSTEM_PYTHON} is Python {version}: the engine needs 3.11 or newer")
    return version


def _build(folder: Path) -> None:
    venv = folder / "venv"
    own = golang.TOOLS.parent / ".cache/uv/bin/uv"  # where `make setup` puts it if the machine has none
    uv = str(own) if own.exists() else golang.require("uv", "`make setup` installs it")
    # Pods see it read-only: without byte code made now, each of their processes would compile all it imports.
    sync = [uv, "pip", "sync", "--quiet", "--require-hashes", "--compile-bytecode"]
    for command in (
        [uv, "venv", "--quiet", "--python", str(SYSTEM_PYTHON), str(venv)],
        [*sync, "--python", str(venv / "bin/python"), str(REQUIREMENTS)],
    ):
        done = subprocess.run(  # noqa: S603 - uv
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"uv failed:\n{done.stderr[-4000:]}")
