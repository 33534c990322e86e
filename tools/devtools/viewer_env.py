"""The trace page of `guidedmodel run --viewer` and a browser to take its picture with, for `make picture`.

The page is installed into the cache, apart from vLLM's environment, whose versions it does not share.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from devtools import cache, golang

REQUIREMENTS = golang.TOOLS.parent / "requirements/viewer.txt"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
INSTALL_TIMEOUT_S = 900


def path() -> Path:
    """Return the folder of the program `phoenix`, installed the first time (0.6 GB)."""
    return cache.built("viewer-env", [REQUIREMENTS, sys.version], _build) / "venv/bin"


def browser() -> str | None:
    """Return a browser that can run without a screen."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def main() -> None:
    """Install both; the browser from Debian's packages, which needs root."""
    print(f"viewer: {path()}")  # noqa: T201 - progress
    if browser() is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            sys.exit(f"viewer: install one of {', '.join(BROWSERS)}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", BROWSERS[0]]):
            subprocess.run(  # noqa: S603 - apt-get
                ["apt-get", *command],  # noqa: S607 - Debian's own
                env=environment,
                stdout=subprocess.DEVNULL,
                timeout=INSTALL_TIMEOUT_S,
                check=True,
            )


def _build(folder: Path) -> None:
    own = golang.TOOLS.parent / ".cache/uv/bin/uv"  # where `make setup` puts it if the machine has none
    uv = str(own) if own.exists() else golang.require("uv", "`make setup` installs it")
    venv = folder / "venv"
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(venv)],
        [
            uv,
            "pip",
            "sync",
            "--quiet",
            "--require-hashes",
            "--python",
            f"{venv}/bin/python",
            str(REQUIREMENTS),
        ],
    ):
        subprocess.run(command, timeout=INSTALL_TIMEOUT_S, check=True)  # noqa: S603 - uv


if __name__ == "__main__":
    main()
