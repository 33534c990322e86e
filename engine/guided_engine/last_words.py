"""Why a rank did not start, for the end of the container's log.

vLLM's API server ends with a traceback that says that its engine core failed, and a kubelet keeps 2 KiB of a
log's end: what failed would be lost to the pod's status.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# With what the launcher puts before them they fit the 450 that the operator keeps of a line.
_MOST_CHARS: Final = 350
_HALF: Final = 170


@contextlib.contextmanager
def noted(file: Path) -> Iterator[None]:
    """Keep what is raised here, as the first rank's to do so."""
    try:
        yield
    except Exception as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if len(words) > _MOST_CHARS:  # the beginning says what it is, the end often what to do
            words = f"{words[:_HALF]} ... {words[-_HALF:]}"
        with contextlib.suppress(OSError), file.open("x", encoding="utf-8", errors="replace") as kept:
            kept.write(words)
        raise


def of(file: Path) -> str:
    """Return what was kept, "" if nothing was."""
    try:
        with file.open(encoding="utf-8", errors="replace") as kept:
            return kept.read(_MOST_CHARS)
    except OSError:
        return ""
