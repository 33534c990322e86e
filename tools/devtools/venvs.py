"""Virtual environments in the cache, each of one file of `requirements/`: apart from vLLM's own versions."""

import subprocess
import sys
from pathlib import Path

from devtools import cache, golang

REQUIREMENTS = golang.TOOLS.parent / "requirements"
INSTALL_TIMEOUT_S = 900


def path(name: str) -> Path:
    """Return the folder of the programs of `requirements/NAME.txt`, installed the first time.

    Raises
    ------
    MissingToolError
        There is no uv.
    """
    file = REQUIREMENTS / f"{name}.txt"
    return cache.built(f"{name}-env", [file, sys.version], lambda folder: _build(folder, file)) / "venv/bin"


def _build(folder: Path, file: Path) -> None:
    own = golang.TOOLS.parent / ".cache/uv/bin/uv"  # where `make setup` puts it if the machine has none
    uv = str(own) if own.exists() else golang.require("uv", "`make setup` installs it")
    venv = folder / "venv"
    sync = ["pip", "sync", "--quiet", "--require-hashes", "--python", f"{venv}/bin/python", str(file)]
    for command in (["venv", "--quiet", "--python", sys.executable, str(venv)], sync):
        subprocess.run([uv, *command], timeout=INSTALL_TIMEOUT_S, check=True)  # noqa: S603 - uv
