"""The trace page of `guidedmodel run --viewer` and a browser to take its picture with, for `make picture`.

The page is installed into the cache, apart from vLLM's environment, whose versions it does not share.
"""

import shutil
from pathlib import Path

from devtools import packages, venvs

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def path() -> Path:
    """Return the folder of the program `phoenix`, installed the first time (0.6 GB)."""
    return venvs.path("viewer") / "bin"


def browser() -> str | None:
    """Return a browser that can run without a screen."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def main() -> None:
    """Install both; the browser from Debian's packages, which needs root."""
    print(f"viewer: {path()}")  # noqa: T201 - progress
    if browser() is None:
        packages.ensure({BROWSERS[0]: BROWSERS[0]}, "the picture")


if __name__ == "__main__":
    main()
