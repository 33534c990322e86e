"""Virtual environments in the cache, each of one file of `requirements/`: apart from vLLM's own versions."""

import subprocess
import sys
from pathlib import Path

from devtools import cache, golang

# Not a Python below root's home: a pod's user could not read it. The node's images have this one, too.
SYSTEM_PYTHON = Path("/usr/bin/python3")
INSTALL_TIMEOUT_S = 1800


def path(name: str) -> Path:
    """Return the environment of `requirements/NAME.txt`, installed the first time.

    Raises
    ------
    MissingToolError
        There is no uv.
    """
    return _built(name, Path(sys.executable), sys.version)


def engine() -> Path:
    """Return a stock engine's: real vLLM for CPU, nothing of ours, as a vLLM image would hold (2 GB).

    Every user can read it.

    Raises
    ------
    MissingToolError
        There is no system Python 3.11 or newer, or no uv.
    """
    if not SYSTEM_PYTHON.exists():
        raise golang.MissingToolError(f"{SYSTEM_PYTHON} is not there: apt-get install python3 python3-venv")
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    done = subprocess.run(  # noqa: S603 - a fixed program
        [SYSTEM_PYTHON, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    version = done.stdout.strip()
    if tuple(map(int, version.split("."))) < (3, 11):
        raise golang.MissingToolError(f"{SYSTEM_PYTHON} is Python {version}: the engine needs 3.11 or newer")
    return _built("engine-cpu", SYSTEM_PYTHON, version)


def _built(name: str, python: Path, version: str) -> Path:
    requirements = golang.TOOLS.parent / f"requirements/{name}.txt"

    def build(folder: Path) -> None:
        own = golang.TOOLS.parent / ".cache/uv/bin/uv"  # where `make setup` puts it if the machine has none
        uv = str(own) if own.exists() else golang.require("uv", "`make setup` installs it")
        # Pods see it read-only: without byte code made now, each of their processes would compile all.
        sync = ["pip", "sync", "--quiet", "--require-hashes", "--compile-bytecode"]
        for command in (
            ["venv", "--quiet", "--python", str(python), f"{folder}/venv"],
            [*sync, "--python", f"{folder}/venv/bin/python", str(requirements)],
        ):
            subprocess.run([uv, *command], timeout=INSTALL_TIMEOUT_S, check=True)  # noqa: S603 - uv

    return cache.built(f"{name}-env", [requirements, version], build) / "venv"
