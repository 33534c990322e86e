"""Builds, in the background of a test run, what its later tiers need and the cache lacks.

The first tiers leave a core idle for minutes; whoever needs a thing that is being built waits for it. What
this machine cannot build is left out: the tests that need it say why.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from devtools import cluster, golang, image, venvs
from devtools.process import StartError

_LOWEST_PRIORITY: Final = 19
_WANTED: Final[tuple[Callable[[], object], ...]] = (
    golang.promql,
    golang.helm,
    golang.kubernetes,
    cluster.build,
    venvs.engine,
    golang.otelcol,
    image.base,
)


def main() -> None:
    """Build everything, in the order in which it is needed; TERM ends the builds too."""
    os.setpgid(0, 0)
    os.nice(_LOWEST_PRIORITY)
    signal.signal(signal.SIGTERM, _end)
    wanted = len(_WANTED) if os.geteuid() == 0 else 3  # a node needs root
    for build in _WANTED[:wanted]:
        try:
            build()
        except (golang.MissingToolError, StartError, OSError, subprocess.SubprocessError) as error:
            sys.stderr.write(f"prebuild: {error}\n")


def _end(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    sys.exit(0)


if __name__ == "__main__":
    main()
