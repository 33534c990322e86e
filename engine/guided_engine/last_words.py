"""Why a rank did not start, for the end of the container's log.

vLLM's API server ends with a traceback that says that its engine core failed, and a kubelet keeps 2 KiB of a
log's end: what failed would be lost to the pod's status.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 1000


@contextlib.contextmanager
def noted(file: Path) -> Iterator[None]:
    """Keep what is raised here, as the first rank's to do so."""
    try:
        yield
    except Exception as error:
        words = " ".join(str(error).split())
        with contextlib.suppress(OSError), file.open("x", encoding="utf-8") as kept:
            kept.write(f"{type(error).__name__}: {words}"[:_MOST_BYTES])
        raise


def of(file: Path) -> str:
    """Return what was kept, "" if nothing was."""
    try:
        with file.open("rb") as kept:
            return kept.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
