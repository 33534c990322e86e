"""The trace page of `guidedmodel run --viewer` and a browser to take its picture with, for `make picture`.

The page is installed into the cache, apart from vLLM's environment, whose versions it does not share.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from devtools import venvs

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
INSTALL_TIMEOUT_S = 900


def path() -> Path:
    """Return the folder of the program `phoenix`, installed the first time (0.6 GB)."""
    return venvs.path("viewer")


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


if __name__ == "__main__":
    main()
